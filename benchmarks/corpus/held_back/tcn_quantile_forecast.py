"""Forecasts of quantiles of electric loads by a network of dilated convolutions, fed by a generator of windows.

Nothing is planted: windows are views of the series, scales are known beforehand, and a backtest comes every 200 steps.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PAST, FUTURE, QUANTILES = 96, 24, (0.1, 0.5, 0.9)


def synthesize(rng, series=48, hours=4000):
    t = np.arange(hours)
    daily = np.sin(2 * np.pi * (t / 24 + rng.random((series, 1))))
    weekly = np.sin(2 * np.pi * (t / 168 + rng.random((series, 1))))
    level = np.exp(rng.normal(3, 1, (series, 1)))
    noise = rng.normal(0, 0.15, (series, hours)).cumsum(1) * 0.05
    return (level * (2 + daily + 0.5 * weekly + noise)).astype(np.float32)


def windows(loads, rng, batch_size):
    """Yield pasts and futures of random series, with the hour of the day as a second channel."""
    scaled = (loads - loads.mean(1, keepdims=True)) / loads.std(1, keepdims=True)
    views = np.lib.stride_tricks.sliding_window_view(scaled, PAST + FUTURE, axis=1)
    hours = np.lib.stride_tricks.sliding_window_view(np.arange(loads.shape[1]) % 24 / 24, PAST).astype(np.float32)
    while True:
        series = rng.integers(0, views.shape[0], batch_size)
        begun = rng.integers(0, views.shape[1], batch_size)
        rows = views[series, begun]
        past = np.stack([rows[:, :PAST], hours[begun]], 1)
        yield torch.from_numpy(past), torch.from_numpy(rows[:, PAST:].copy())


class CausalBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.gate = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x):
        value, gate = self.gate(self.pad(x)).chunk(2, 1)
        return x + self.out(torch.tanh(value) * torch.sigmoid(gate))


class TCN(nn.Module):
    def __init__(self, width=64, dilations=(1, 2, 4, 8, 16)):
        super().__init__()
        self.stem = nn.Conv1d(2, width, 1)
        self.blocks = nn.Sequential(*(CausalBlock(width, d) for d in dilations))
        self.head = nn.Linear(width, FUTURE * len(QUANTILES))

    def forward(self, past):
        last = self.blocks(self.stem(past))[:, :, -1]
        return self.head(last).view(-1, FUTURE, len(QUANTILES))


class PinballLoss(nn.Module):
    """What a quantile costs: more on the one side than on the other."""

    def __init__(self, quantiles):
        super().__init__()
        self.register_buffer("quantiles", torch.tensor(quantiles))

    def forward(self, forecast, truth):
        error = truth[..., None] - forecast
        return torch.maximum(self.quantiles * error, (self.quantiles - 1) * error).mean()


def backtest(model, loss_fn, feed, batches=6):
    model.eval()
    covered, total = 0.0, 0.0
    with torch.inference_mode():
        for _ in range(batches):
            past, future = next(feed)
            forecast = model(past)
            total += loss_fn(forecast, future).item() / batches
            inside = (future >= forecast[..., 0]) & (future <= forecast[..., -1])
            covered += inside.float().mean().item() / batches
    model.train()
    return total, covered


if __name__ == "__main__":
    diary, _ = begin()
    torch.set_num_threads(1)
    torch.manual_seed(30)
    rng = np.random.default_rng(30)
    loads = synthesize(rng)
    train_feed, test_feed = windows(loads[:, :3400], rng, 20), windows(loads[:, 3400:], rng, 20)
    model, loss_fn = TCN(), PinballLoss(QUANTILES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)
    for step, (past, future) in enumerate(train_feed, 1):
        loss = loss_fn(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        diary.stepped()
        if step % 200 == 0:
            pinball, coverage = backtest(model, loss_fn, test_feed)
            plateau.step(pinball)
            print(f"step {step} pinball {pinball:.4f} coverage {coverage:.2f}", flush=True)
