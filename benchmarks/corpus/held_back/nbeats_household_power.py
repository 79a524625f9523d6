"""Load of households by N-BEATS with a trend and a seasonal stack, in a loop of steps with a warm restart of the rate.

Nothing is planted: windows are a view of one tensor, and the forecast is scored once in 500 steps.
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

HORIZON, LOOKBACK = 24, 120
HOUSEHOLDS, HOURS = 64, 24 * 90
BATCH = 384


def household_power():
    """Return hourly loads of all households: two rhythms, a trend and noise."""
    hours = torch.arange(HOURS, dtype=torch.float32)
    phase = torch.rand(HOUSEHOLDS, 1) * 4
    daily = torch.sin((hours + phase) * 2 * torch.pi / 24)
    weekly = torch.sin(hours * 2 * torch.pi / 168) * torch.rand(HOUSEHOLDS, 1)
    trend = hours / HOURS * torch.randn(HOUSEHOLDS, 1)
    return 2 + daily + 0.5 * weekly + trend + 0.2 * torch.randn(HOUSEHOLDS, HOURS)


def trend_bases(degree=3):
    times = torch.cat([torch.arange(-LOOKBACK, 0), torch.arange(HORIZON)]) / HORIZON
    basis = torch.stack([times**power for power in range(degree + 1)])
    return basis[:, :LOOKBACK], basis[:, LOOKBACK:]


def seasonal_bases(harmonics=8):
    times = torch.cat([torch.arange(-LOOKBACK, 0), torch.arange(HORIZON)]) / 24
    angles = 2 * torch.pi * torch.arange(1, harmonics + 1)[:, None] * times
    basis = torch.cat([angles.cos(), angles.sin()])
    return basis[:, :LOOKBACK], basis[:, LOOKBACK:]


class Block(nn.Module):
    def __init__(self, bases, width=192):
        super().__init__()
        back, ahead = bases
        self.register_buffer("back", back.float())
        self.register_buffer("ahead", ahead.float())
        layers = [nn.Linear(LOOKBACK, width), nn.ReLU()]
        for _ in range(2):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.theta_back = nn.Linear(width, len(back), bias=False)
        self.theta_ahead = nn.Linear(width, len(ahead), bias=False)

    def forward(self, x):
        hidden = self.body(x)
        return self.theta_back(hidden) @ self.back, self.theta_ahead(hidden) @ self.ahead


class NBeats(nn.Module):
    def __init__(self, blocks=3):
        super().__init__()
        trend = [Block(trend_bases()) for _ in range(blocks)]
        seasonal = [Block(seasonal_bases()) for _ in range(blocks)]
        self.blocks = nn.ModuleList(trend + seasonal)

    def forward(self, x):
        rest, forecast = x, 0
        for block in self.blocks:
            backcast, ahead = block(rest)
            rest = rest - backcast
            forecast = forecast + ahead
        return forecast


def smape(forecast, actual):
    return 200 * ((forecast - actual).abs() / (forecast.abs() + actual.abs() + 1e-3)).mean()


@torch.no_grad()
def score(model, series):
    model.eval()
    held = series[:, -(LOOKBACK + HORIZON) :]
    result = smape(model(held[:, :LOOKBACK]), held[:, LOOKBACK:])
    model.train()
    return result.item()


def main():
    diary, _ = begin()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    series = household_power()
    windows = series[:, : -HORIZON * 7].unfold(1, LOOKBACK + HORIZON, 1)
    model = NBeats()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=1000)
    step = 0
    while True:
        households = torch.randint(HOUSEHOLDS, (BATCH,))
        starts = torch.randint(windows.shape[1], (BATCH,))
        batch = windows[households, starts]
        loss = smape(model(batch[:, :LOOKBACK]), batch[:, LOOKBACK:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        step += 1
        if step % 500 == 0:
            print(f"step {step}: sMAPE {loss.item():.2f} held {score(model, series):.2f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
