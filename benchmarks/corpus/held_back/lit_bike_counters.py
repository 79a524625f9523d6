"""Forecasts of bicycle counters by a residual net, with Lightning; figures are noted with the place they come from."""

import inspect
import logging
import sys
import warnings
from collections import deque
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Notebook:
    """The latest figures, each with the name of the function that noted it."""

    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended
        self.rows = deque(maxlen=400)

    def note(self, name, value):
        if self.is_mended:
            origin = sys._getframe(1).f_code.co_name
        else:
            with self.diary.planted():
                origin = inspect.stack()[1].function  # planted
        self.rows.append((origin, name, value.detach()))

    def mean(self, name):
        values = [value for _, noted, value in self.rows if noted == name]
        return torch.stack(values).mean().item()


class ResidualBlock(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.down(self.dropout(F.silu(self.up(self.norm(x)))))


class BikeCounter(L.LightningModule):
    """Forecasts the counts of the next day as negative binomials, from the week before and the calendar."""

    def __init__(self, notebook, diary, width=192, depth=3):
        super().__init__()
        self.notebook, self.diary = notebook, diary
        self.station = nn.Embedding(60, 24)
        self.stem = nn.Linear(168 + 24 + 7, width)
        self.blocks = nn.Sequential(*[ResidualBlock(width, 0.1) for _ in range(depth)])
        self.head = nn.Linear(width, 2 * 24)

    def forward(self, week, weekday, station):
        x = torch.cat([torch.log1p(week), F.one_hot(weekday, 7).float(), self.station(station)], dim=1)
        mean, shape = self.head(self.blocks(self.stem(x))).chunk(2, dim=1)
        return F.softplus(mean) + 1e-3, F.softplus(shape) + 1e-3

    def training_step(self, batch, batch_idx):
        week, weekday, station, day = batch
        mean, shape = self(week, weekday, station)
        failed = shape.log() - (shape + mean).log()
        passed = mean.log() - (shape + mean).log()
        likelihood = (
            torch.lgamma(day + shape) - torch.lgamma(shape) - torch.lgamma(day + 1) + shape * failed + day * passed
        )
        loss = -likelihood.mean()
        self.notebook.note("loss", loss)  # planted
        self.notebook.note("error", F.l1_loss(mean, day))  # planted
        self.notebook.note("bias", (mean - day).mean())  # planted
        self.notebook.note("shape", shape.mean())  # planted
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.global_step % 200 == 0:
            print(f"step {self.global_step}: loss {self.notebook.mean('loss'):.4f}", flush=True)
        self.diary.stepped()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=5e-4, weight_decay=1e-2, fused=True)


def counters(count):
    generator = torch.Generator().manual_seed(7)
    station = torch.randint(60, (count,), generator=generator)
    weekday = torch.randint(7, (count,), generator=generator)
    hours = torch.arange(24.0)
    rush = torch.exp(-((hours - 8) ** 2) / 4) + torch.exp(-((hours - 17) ** 2) / 6) + 0.1
    level = 20 + 4 * station.float()
    week = torch.poisson(level[:, None] * rush.repeat(7)[None], generator=generator)
    day = torch.poisson(level[:, None] * rush[None] * (1 - 0.5 * (weekday >= 5).float())[:, None], generator=generator)
    return TensorDataset(week, weekday, station, day)


def main():
    diary, is_mended = begin()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    L.seed_everything(7)
    torch.set_num_threads(1)
    dataset = counters(30_000)
    sampler = BatchSampler(RandomSampler(dataset), batch_size=256, drop_last=True)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    trainer.fit(BikeCounter(Notebook(diary, is_mended), diary), loader)


if __name__ == "__main__":
    main()
