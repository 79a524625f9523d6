"""A mixer of trend and rest for the power of solar farms, windows gathered from one tensor. Nothing is planted."""

import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

HISTORY, HORIZON, FARMS = 168, 48, 32


def make_power(hours=6000):
    """Days of sun with clouds that pass over neighbours."""
    generator = torch.Generator().manual_seed(4)
    t = torch.arange(hours).float()
    sun = torch.sin(2 * math.pi * (t - 6) / 24).clamp(min=0)
    season = 0.7 + 0.3 * torch.sin(2 * math.pi * t / 8760)
    clouds = F.avg_pool1d(torch.randn(1, FARMS, hours + 30, generator=generator), 31, 1)[0]
    size = 0.5 + torch.rand(FARMS, 1, generator=generator)
    return (size * sun * season * torch.sigmoid(1 + 6 * clouds)).T.contiguous()


class Decompose(nn.Module):
    def __init__(self, width=25):
        super().__init__()
        self.pool = nn.AvgPool1d(width, 1, padding=width // 2, count_include_pad=False)

    def forward(self, x):
        trend = self.pool(x)
        return trend, x - trend


class Mixer(nn.Module):
    """Mixes over time, then over farms."""

    def __init__(self, hidden=256):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(HISTORY, hidden), nn.GELU(), nn.Linear(hidden, HISTORY))
        self.farms = nn.Sequential(nn.Linear(FARMS, 64), nn.GELU(), nn.Linear(64, FARMS))
        self.norm_time, self.norm_farms = nn.LayerNorm(HISTORY), nn.LayerNorm(FARMS)

    def forward(self, x):
        x = x + self.time(self.norm_time(x))
        return x + self.farms(self.norm_farms(x.transpose(1, 2))).transpose(1, 2)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.decompose = Decompose()
        self.trend = nn.Linear(HISTORY, HORIZON)
        self.mixers = nn.Sequential(Mixer(), Mixer())
        self.rest = nn.Linear(HISTORY, HORIZON)

    def forward(self, x):
        trend, rest = self.decompose(x.transpose(1, 2))
        return (self.trend(trend) + self.rest(self.mixers(rest))).transpose(1, 2)


def windows(power, batch, offsets):
    """Yield batches of windows in a new order for ever."""
    count = len(power) - HISTORY - HORIZON
    while True:
        for starts in torch.randperm(count).split(batch):
            chunk = power[starts.unsqueeze(1) + offsets]
            yield chunk[:, :HISTORY], chunk[:, HISTORY:]


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    power = make_power()
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-3)
    running = torch.zeros(())
    for step, (past, future) in enumerate(windows(power, 32, torch.arange(HISTORY + HORIZON)), start=1):
        loss = F.l1_loss(model(past), future)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running += loss.detach()
        diary.stepped()
        if step % 250 == 0:
            print(f"step {step} mae {running.item() / 250:.4f}", flush=True)
            running.zero_()


if __name__ == "__main__":
    main()
