"""Barlow twins for windows of wearable sensors; each batch starts processes of its own to distort the windows."""

import multiprocessing
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CHANNELS, LENGTH, BATCH = 6, 128, 32


def distort(window, seed):
    """Scale, jitter and shift a window, or a number of windows."""
    rng = np.random.default_rng(seed)
    lead = window.shape[:-1]
    scaled = window * rng.normal(1.0, 0.15, (*lead, 1)) + rng.normal(0.0, 0.05, window.shape)
    return np.roll(scaled, int(rng.integers(-16, 17)), -1).astype(np.float32)


class PoolViews:
    """Distort parts of the batch in processes."""

    def __call__(self, batch, seed):
        parts = np.array_split(batch, 4)
        with multiprocessing.get_context("fork").Pool(2) as pool:  # planted
            return np.concatenate(pool.starmap(distort, zip(parts, range(seed, seed + 4), strict=True)))


class PlainViews:
    """Distort the batch here: it takes less than sending it away."""

    def __call__(self, batch, seed):
        return np.concatenate([distort(part, seed + i) for i, part in enumerate(np.array_split(batch, 4))])


class Encoder(nn.Module):
    def __init__(self, width=64, out=256):
        super().__init__()
        layers, c = [], CHANNELS
        for i in range(4):
            layers += [nn.Conv1d(c, width, 7, 1 + (i > 0), 3, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
            c, width = width, width + 32
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.projector = nn.Sequential(nn.Linear(c, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, out))

    def forward(self, x):
        return self.projector(self.body(x))


class BarlowLoss(nn.Module):
    def __init__(self, out=256, weight=5e-3):
        super().__init__()
        self.weight, self.norm = weight, nn.BatchNorm1d(out, affine=False)

    def forward(self, a, b):
        c = self.norm(a).T @ self.norm(b) / len(a)
        on = (c.diagonal() - 1).square().sum()
        return on + self.weight * (c.square().sum() - c.diagonal().square().sum())


class Pretraining:
    def __init__(self, diary, views):
        self.diary, self.views, self.rng = diary, views, np.random.default_rng(4)
        phase = self.rng.random((2000, CHANNELS, 1)) * 6.28
        rate = self.rng.uniform(0.05, 0.4, (2000, CHANNELS, 1))
        self.windows = np.sin(rate * np.arange(LENGTH) + phase).astype(np.float32)
        self.encoder, self.loss = Encoder(), BarlowLoss()
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), 1e-3, weight_decay=1e-4)

    def two_views(self, rows):
        batch = self.windows[rows]
        twice = np.concatenate([batch, batch])
        with self.diary.planted():
            return self.views(twice, int(self.rng.integers(1 << 30)))

    def epoch(self, number):
        for rows in np.array_split(self.rng.permutation(len(self.windows)), len(self.windows) // BATCH):
            pair = torch.from_numpy(self.two_views(rows))  # planted
            a, b = self.encoder(pair).chunk(2)
            loss = self.loss(a, b)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.diary.stepped()
        print(f"epoch {number} loss {loss.item():.2f}", flush=True)


def main():
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(4)
    pretraining = Pretraining(diary, PlainViews() if is_mended else PoolViews())
    number = 0
    while True:
        pretraining.epoch(number)
        number += 1


if __name__ == "__main__":
    main()
