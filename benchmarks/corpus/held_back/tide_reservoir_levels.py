"""Levels of reservoirs forecast by a dense encoder (TiDE), trained on windows of one long table.

Nothing is planted.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    reservoirs: int = 12
    days: int = 4000
    lookback: int = 180
    horizon: int = 30
    covariates: int = 6
    width: int = 256
    batch: int = 96
    lr: float = 1e-3


class ResidualBlock(nn.Module):
    def __init__(self, inputs, hidden, outputs, dropout=0.1):
        super().__init__()
        self.dense, self.out = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)
        self.skip, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.norm(self.dropout(self.out(F.relu(self.dense(x)))) + self.skip(x))


class TiDE(nn.Module):
    def __init__(self, config, projected=4, decoded=16):
        super().__init__()
        self.config = config
        self.projection = ResidualBlock(config.covariates, 32, projected)
        flat = config.lookback + (config.lookback + config.horizon) * projected
        self.encoder = nn.Sequential(
            ResidualBlock(flat, config.width, config.width), ResidualBlock(config.width, config.width, config.width)
        )
        self.decoder = ResidualBlock(config.width, config.width, config.horizon * decoded)
        self.temporal = ResidualBlock(decoded + projected, 32, 1)
        self.residual = nn.Linear(config.lookback, config.horizon)

    def forward(self, past, covariates):
        level, spread = past.mean(dim=1, keepdim=True), past.std(dim=1, keepdim=True) + 1e-4
        past = (past - level) / spread
        projected = self.projection(covariates)
        encoded = self.encoder(torch.cat([past, projected.flatten(1)], dim=1))
        decoded = self.decoder(encoded).view(len(past), self.config.horizon, -1)
        future = torch.cat([decoded, projected[:, self.config.lookback :]], dim=2)
        return (self.temporal(future).squeeze(2) + self.residual(past)) * spread + level


def make_table(config):
    """Return levels (reservoir, day) and covariates (day, feature)."""
    day = torch.arange(config.days, dtype=torch.float32)
    season = torch.stack([torch.sin(6.2832 * day / 365), torch.cos(6.2832 * day / 365)])
    rain = torch.rand(config.days).pow(6) * 5
    snow = F.avg_pool1d(rain.view(1, 1, -1), 31, 1, 15).view(-1) * (season[1] > 0)
    demand = torch.stack([torch.sin(6.2832 * day / 7), torch.cos(6.2832 * day / 7)])
    covariates = torch.cat([season, rain[None], snow[None], demand]).t().contiguous()
    effects = torch.randn(config.reservoirs, config.covariates) * 0.1
    flow = covariates @ effects.t() + 0.1 * torch.randn(config.days, config.reservoirs)
    levels = F.avg_pool1d(flow.t().unsqueeze(1), 61, 1, 30).squeeze(1)
    return (levels - levels.mean(1, keepdim=True)) / levels.std(1, keepdim=True), covariates


class Windows:
    """All windows as views of the table: a batch is one gather."""

    def __init__(self, config, levels, covariates):
        length = config.lookback + config.horizon
        self.levels = levels.unfold(1, length, 1)
        self.covariates = covariates.unfold(0, length, 1).transpose(1, 2)
        self.config = config

    def draw(self):
        reservoirs = torch.randint(self.config.reservoirs, (self.config.batch,))
        days = torch.randint(len(self.covariates), (self.config.batch,))
        window = self.levels[reservoirs, days]
        return window[:, : self.config.lookback], self.covariates[days], window[:, self.config.lookback :]


def train(config, diary):
    windows = Windows(config, *make_table(config))
    model = TiDE(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2000, 0.5)
    total, step = torch.zeros(()), 0
    while True:
        past, covariates, future = windows.draw()
        loss = F.mse_loss(model(past, covariates), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.detach()
        step += 1
        diary.stepped()
        if step % 500 == 0:
            print(f"step {step}: mse {total.item() / 500:.4f}", flush=True)
            total.zero_()


if __name__ == "__main__":
    torch.manual_seed(15)
    torch.set_num_threads(1)
    train(Config(), begin()[0])
