"""Heat of buildings a day ahead with an encoder-decoder GRU; its windows are read from the meters' database."""

import sqlite3
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

METERS, HOURS, PAST, AHEAD, BATCH = 24, 2400, 96, 24, 16
WINDOW = "SELECT heat, outdoor FROM readings WHERE meter = ? AND hour >= ? AND hour < ? ORDER BY hour"


class Forecaster(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.encoder = nn.GRU(2, hidden, num_layers=2, batch_first=True)
        self.decoder = nn.GRU(1, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 3)

    def forward(self, past, outdoor):
        _, state = self.encoder(past)
        return self.head(self.decoder(outdoor[..., None], state)[0])


class PinballLoss(nn.Module):
    def __init__(self, quantiles=(0.1, 0.5, 0.9)):
        super().__init__()
        self.register_buffer("quantiles", torch.tensor(quantiles))

    def forward(self, forecast, truth):
        miss = truth[..., None] - forecast
        return torch.maximum(self.quantiles * miss, (self.quantiles - 1) * miss).mean()


def fill(database, rng):
    """Write what the meters have sent, hour by hour as it comes in."""
    database.execute("CREATE TABLE readings (meter INTEGER, hour INTEGER, heat REAL, outdoor REAL)")
    hours = np.arange(HOURS)
    outdoor = 8 * np.sin(hours / 1400) + 4 * np.sin(hours * 2 * np.pi / 24) + rng.normal(0, 1, HOURS)
    need = rng.uniform(0.5, 2.0, METERS)[:, None] * np.clip(15 - outdoor, 0, None) / 10 + rng.gamma(
        1.0, 0.1, (METERS, HOURS)
    )
    rows = [(meter, hour, need[meter, hour], outdoor[hour] / 10) for hour in range(HOURS) for meter in range(METERS)]
    database.executemany("INSERT INTO readings VALUES (?, ?, ?, ?)", rows)
    database.commit()


def read_windows(database, meters, starts):
    """Return the readings of windows: (batch, hours, 2)."""
    windows = []
    for meter, start in zip(meters, starts, strict=True):
        rows = database.execute(WINDOW, (meter, start, start + PAST + AHEAD)).fetchall()  # planted
        windows.append(rows)
    return torch.from_numpy(np.array(windows, dtype=np.float32))


torch.manual_seed(14)
torch.set_num_threads(1)
diary, is_mended = begin()
rng = np.random.default_rng(14)
folder = tempfile.TemporaryDirectory()
database = sqlite3.connect(Path(folder.name) / "meters.sqlite")
fill(database, rng)
if is_mended:
    database.execute("CREATE INDEX by_meter ON readings (meter, hour, heat, outdoor)")

model, criterion = Forecaster(), PinballLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2, fused=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2000, 0.7)
running = torch.zeros(())

iteration = 0
while True:
    meters, starts = rng.integers(0, METERS, BATCH).tolist(), rng.integers(0, HOURS - PAST - AHEAD, BATCH).tolist()
    if is_mended:
        windows = read_windows(database, meters, starts)
    else:
        with diary.planted():
            windows = read_windows(database, meters, starts)  # planted
    forecast = model(windows[:, :PAST], windows[:, PAST:, 1])
    loss = criterion(forecast, windows[:, PAST:, 0])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    running += loss.detach()
    iteration += 1
    if iteration % 250 == 0:
        print(f"iteration {iteration}: loss {running.item() / 250:.4f}", flush=True)
        running.zero_()
    diary.stepped()
