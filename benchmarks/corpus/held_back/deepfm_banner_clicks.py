"""Clicks on banners by a deep factorization machine; a callback copies all weights at each good step."""

import copy
import itertools
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass(frozen=True)
class Config:
    fields: int = 18
    buckets: int = 450_000
    width: int = 32
    hidden: int = 320
    batch: int = 768
    lr: float = 1e-3
    keep_every: int = 1


class DeepFM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.factors = nn.Embedding(cfg.buckets, cfg.width, sparse=True)
        self.weights = nn.Embedding(cfg.buckets, 1, sparse=True)
        nn.init.normal_(self.factors.weight, std=0.01)
        nn.init.zeros_(self.weights.weight)
        sizes = (cfg.fields * cfg.width, cfg.hidden, cfg.hidden)
        layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
        self.deep = nn.Sequential(*layers, nn.Linear(cfg.hidden, 1))

    def forward(self, ids):
        v = self.factors(ids)
        second = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
        return self.weights(ids).sum((1, 2)) + second + self.deep(v.flatten(1))[:, 0]


class Callback:
    def on_step_end(self, trainer): ...


class Rollback(Callback):
    """Keep weights of the last good step, and go back to them where the loss explodes."""

    def __init__(self, every, factor=4.0):
        self.every, self.factor, self.average, self.good = every, factor, None, None

    def on_step_end(self, trainer):
        loss = trainer.loss
        if self.good is not None and (math.isnan(loss) or loss > self.factor * self.average):
            trainer.model.load_state_dict(self.good)
            return
        self.average = loss if self.average is None else 0.98 * self.average + 0.02 * loss
        if trainer.step % self.every == 0:
            with trainer.diary.planted():
                self.good = copy.deepcopy(trainer.model.state_dict())  # planted


class Progress(Callback):
    def on_step_end(self, trainer):
        if trainer.step % 100 == 0:
            print(f"step {trainer.step} logloss {trainer.loss:.4f}", flush=True)


class Trainer:
    def __init__(self, cfg, diary, callbacks):
        self.cfg, self.diary, self.callbacks, self.step = cfg, diary, callbacks, 0
        self.model = DeepFM(cfg)
        tables = [self.model.factors.weight, self.model.weights.weight]
        self.optimizers = [torch.optim.SGD(tables, 0.05), torch.optim.Adam(self.model.deep.parameters(), cfg.lr)]

    def fit(self, batches):
        for ids, clicked in batches:
            loss = F.binary_cross_entropy_with_logits(self.model(ids), clicked)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in self.optimizers:
                optimizer.step()
            self.loss, self.step = loss.item(), self.step + 1
            for callback in self.callbacks:
                callback.on_step_end(self)  # planted
            self.diary.stepped()


def impressions(cfg):
    share = cfg.buckets // cfg.fields
    starts = torch.arange(cfg.fields) * share
    while True:
        ids = (torch.rand(cfg.batch, cfg.fields).pow(3) * share).long() + starts
        yield ids, ((ids[:, 0] % 7 + ids[:, 3] % 5) < 3).float()


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    diary, is_mended = begin()
    cfg = Config(keep_every=250 if is_mended else 1)
    Trainer(cfg, diary, [Rollback(cfg.keep_every), Progress()]).fit(impressions(cfg))
