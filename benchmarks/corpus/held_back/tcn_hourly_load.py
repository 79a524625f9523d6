"""Quantiles of tomorrow's electric load with a temporal convolutional network, and a trainer with callbacks.

Nothing is planted: the windows are a view of the series, and validation takes some percent of the time.
"""

import copy
import itertools
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

METERS, HOURS, PAST, AHEAD, QUANTILES = 24, 24 * 365, 168, 24, torch.tensor([0.1, 0.5, 0.9])


def load_series():
    hour = torch.arange(HOURS, dtype=torch.float32)
    phase, weight = torch.rand(METERS, 1) * 6.28, torch.rand(METERS, 1)
    day, week = torch.sin(6.2832 * hour / 24 + phase), torch.sin(6.2832 * hour / 168 + 2 * phase)
    return day + weight * week + 0.2 * torch.randn(METERS, HOURS)


class Windows(Dataset):
    """Takes a whole batch of places at once: the sampler gives lists of them."""

    def __init__(self, series):
        self.windows = series.unfold(1, PAST + AHEAD, 6)
        hours = torch.arange(series.shape[1]).unfold(0, PAST + AHEAD, 6)[:, :PAST] % 24
        self.calendar = torch.stack([torch.sin(hours * 0.2618), torch.cos(hours * 0.2618)], 1)
        self.per_meter = self.windows.shape[1]

    def __len__(self):
        return METERS * self.per_meter

    def __getitem__(self, places):
        places = torch.as_tensor(places)
        meter, start = places // self.per_meter, places % self.per_meter
        window = self.windows[meter, start]
        return torch.cat([window[:, None, :PAST], self.calendar[start]], 1), meter, window[:, PAST:]

    def loader(self, batch_size, is_shuffled):
        order = RandomSampler(self) if is_shuffled else SequentialSampler(self)
        return DataLoader(self, batch_size=None, sampler=BatchSampler(order, batch_size, drop_last=True))


class CausalBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.reach = 2 * dilation
        self.conv1 = nn.utils.parametrizations.weight_norm(nn.Conv1d(channels, channels, 3, dilation=dilation))
        self.conv2 = nn.utils.parametrizations.weight_norm(nn.Conv1d(channels, channels, 3, dilation=dilation))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        y = self.drop(F.relu(self.conv1(F.pad(x, (self.reach, 0)))))
        return x + self.drop(F.relu(self.conv2(F.pad(y, (self.reach, 0)))))


class TCN(nn.Module):
    def __init__(self, channels=40):
        super().__init__()
        self.meters, self.stem = nn.Embedding(METERS, channels), nn.Conv1d(3, channels, 1)
        self.blocks = nn.Sequential(*(CausalBlock(channels, 2**i) for i in range(5)))
        self.head = nn.Linear(channels, AHEAD * len(QUANTILES))

    def forward(self, past, meter):
        x = self.blocks(self.stem(past) + self.meters(meter)[:, :, None])
        return self.head(x[:, :, -1]).unflatten(1, (AHEAD, len(QUANTILES)))


def pinball(predicted, wanted):
    error = wanted[..., None] - predicted
    return torch.maximum(QUANTILES * error, (QUANTILES - 1) * error).mean()


class KeepBest:
    best = float("inf")

    def after_validation(self, trainer, loss):
        if loss < self.best:
            self.best, self.weights = loss, copy.deepcopy(trainer.model.state_dict())


class Printer:
    def __init__(self, diary):
        self.diary = diary

    def after_step(self, trainer):
        self.diary.stepped()
        if trainer.step % 50 == 0:
            print(f"step {trainer.step} pinball {trainer.loss.item():.4f}", flush=True)

    def after_validation(self, trainer, loss):
        print(f"step {trainer.step} validation {loss:.4f}", flush=True)


class Trainer:
    def __init__(self, model, criterion, callbacks, validate_every=400, validation_batches=30):
        self.model, self.criterion, self.callbacks, self.step = model, criterion, callbacks, 0
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        self.validate_every, self.validation_batches = validate_every, validation_batches

    def call(self, event, *details):
        for callback in self.callbacks:
            if handler := getattr(callback, event, None):
                handler(self, *details)

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        batches = itertools.islice(loader, self.validation_batches)
        losses = [self.criterion(self.model(past, meter), wanted) for past, meter, wanted in batches]
        self.model.train()
        return torch.stack(losses).mean().item()

    def fit(self, train, valid):
        while True:
            for past, meter, wanted in train:
                self.loss = self.criterion(self.model(past, meter), wanted)
                self.optimizer.zero_grad()
                self.loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.step += 1
                self.call("after_step")
                if self.step % self.validate_every == 0:
                    self.call("after_validation", self.validate(valid))


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    series = load_series()
    split = HOURS * 4 // 5
    trainer = Trainer(TCN(), pinball, [KeepBest(), Printer(begin()[0])])
    trainer.fit(Windows(series[:, :split]).loader(32, True), Windows(series[:, split:]).loader(32, False))
