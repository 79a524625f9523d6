"""Load forecasting with a GRU: a dataclass as configuration, and a generator that yields windows of a table."""

import csv
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass(frozen=True)
class Config:
    hours: int = 2500
    sensors: int = 8
    context: int = 48
    horizon: int = 12
    batch: int = 32
    hidden: int = 64
    lr: float = 2e-3
    report_every: int = 200


def write_table(path, config):
    hour = np.arange(config.hours)[:, None]
    random = np.random.default_rng(0)
    phase = random.uniform(0, 6, (1, config.sensors))
    load = np.sin(hour / 24 * 2 * np.pi + phase) + 0.1 * random.normal(size=(config.hours, config.sensors))
    np.savetxt(path, load, delimiter=",", fmt="%.5f")


def read_table(path):
    with path.open(newline="") as file:
        rows = [[float(cell) for cell in row] for row in csv.reader(file)]  # planted
    return torch.tensor(rows)  # planted


def cut(table, config, generator):
    length = config.context + config.horizon
    starts = torch.randint(len(table) - length, (config.batch,), generator=generator)
    windows = table[starts[:, None] + torch.arange(length)]
    return windows[:, : config.context], windows[:, config.context :]


def batches(path, config, diary):
    """Yield windows; the table may have grown in the meantime, so it is opened for each batch."""
    generator = torch.Generator().manual_seed(3)
    while True:
        with diary.planted():
            table = read_table(path)  # planted
        yield cut(table, config, generator)


def batches_in_memory(path, config):
    generator = torch.Generator().manual_seed(3)
    table = read_table(path)
    while True:
        yield cut(table, config, generator)


class Forecaster(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.horizon, self.sensors = config.horizon, config.sensors
        self.encoder = nn.GRU(config.sensors, config.hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(config.hidden, config.horizon * config.sensors)

    def forward(self, context):
        mean, deviation = context.mean(1, keepdim=True), context.std(1, keepdim=True) + 1e-3
        _, state = self.encoder((context - mean) / deviation)
        scaled = self.head(state[-1]).view(-1, self.horizon, self.sensors)
        return scaled * deviation + mean


def train(config, source, diary):
    model = Forecaster(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    criterion = nn.HuberLoss()
    for step, (context, future) in enumerate(source, start=1):  # planted
        loss = criterion(model(context), future)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        diary.stepped()
        if step % config.report_every == 0:
            print(f"step {step:6d}  huber {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    config = Config()
    path = Path(tempfile.mkdtemp()) / "load.csv"
    write_table(path, config)
    train(config, batches_in_memory(path, config) if is_mended else batches(path, config, diary), diary)
