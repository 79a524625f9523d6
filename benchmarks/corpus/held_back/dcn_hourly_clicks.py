"""Deep & Cross Network on a log of clicks; features of time are parsed by strptime for each row of each batch."""

import random
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
FIELDS = {"site": 2_000, "campaign": 500, "device": 40, "region": 120, "slot": 12}
HOURS, WEEKDAYS = 24, 7
BATCH_SIZE = 512


class Log(NamedTuple):
    """The log, by columns."""

    fields: np.ndarray
    shown_at: list
    last_visit: list
    clicked: np.ndarray


class Moments(NamedTuple):
    hour: np.ndarray
    weekday: np.ndarray
    away: np.ndarray


def make_log(rows=40_000):
    rng, draw = np.random.default_rng(21), random.Random(21)
    fields = np.stack([rng.integers(0, size, rows) for size in FIELDS.values()], axis=1)
    shown_at, last_visit = [], []
    begun = datetime(2024, 3, 1)
    for _ in range(rows):
        shown = begun + timedelta(seconds=draw.randrange(28 * 86_400))
        shown_at.append(shown.strftime(TIME_FORMAT))
        last_visit.append((shown - timedelta(seconds=draw.expovariate(1 / 40_000))).strftime(TIME_FORMAT))
    clicked = (rng.random(rows) < 0.05 + 0.1 * (fields[:, 0] % 5 == 0)).astype(np.float32)
    return Log(fields, shown_at, last_visit, clicked)


def moments_of(log, rows):
    """Return hour, day of the week, and how long the user was away, of these rows."""
    hour = np.empty(len(rows), np.int64)
    weekday = np.empty(len(rows), np.int64)
    away = np.empty(len(rows), np.float32)
    for place, row in enumerate(rows):
        shown = datetime.strptime(log.shown_at[row], TIME_FORMAT)  # planted
        visit = datetime.strptime(log.last_visit[row], TIME_FORMAT)  # planted
        hour[place], weekday[place] = shown.hour, shown.weekday()
        away[place] = np.log1p((shown - visit).total_seconds())
    return Moments(hour, weekday, away)


def all_moments(log):
    """Return the same of the whole log, once."""
    shown = np.array(log.shown_at, dtype="datetime64[s]")
    visit = np.array(log.last_visit, dtype="datetime64[s]")
    hours = shown.astype("datetime64[h]").astype(np.int64)
    away = np.log1p((shown - visit).astype(np.int64)).astype(np.float32)
    return Moments(hours % 24, (hours // 24 + 3) % 7, away)


class CrossLayer(nn.Module):
    def __init__(self, width, rank=32):
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)

    def forward(self, x0, x):
        return x0 * self.up(self.down(x)) + x


class DCN(nn.Module):
    def __init__(self, size=16, layers=3):
        super().__init__()
        sizes = [*FIELDS.values(), HOURS, WEEKDAYS]
        self.table = nn.Embedding(sum(sizes), size)
        self.register_buffer("offsets", torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()]))
        width = len(sizes) * size + 1
        self.crosses = nn.ModuleList(CrossLayer(width) for _ in range(layers))
        self.deep = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
        self.head = nn.Linear(width + 128, 1)

    def forward(self, fields, away):
        x0 = torch.cat([self.table(fields + self.offsets).flatten(1), away[:, None]], 1)
        x = x0
        for cross in self.crosses:
            x = cross(x0, x)
        return self.head(torch.cat([x, self.deep(x0)], 1)).squeeze(1)


def main():
    diary, is_mended = begin()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    rng = np.random.default_rng(4)
    log = make_log()
    parsed = all_moments(log) if is_mended else None
    model = DCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step, mean_loss = 0, torch.zeros(())
    while True:
        order = rng.permutation(len(log.clicked))
        for begun in range(0, len(order) - BATCH_SIZE + 1, BATCH_SIZE):
            rows = order[begun : begun + BATCH_SIZE]
            if is_mended:
                moments = Moments(*(column[rows] for column in parsed))
            else:
                with diary.planted():
                    moments = moments_of(log, rows.tolist())  # planted
            fields = np.column_stack([log.fields[rows], moments.hour, moments.weekday])
            logits = model(torch.from_numpy(fields), torch.from_numpy(moments.away))
            loss = F.binary_cross_entropy_with_logits(logits, torch.from_numpy(log.clicked[rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean_loss += 0.02 * (loss.detach() - mean_loss)
            step += 1
            if step % 200 == 0:
                print(f"step {step}: loss {mean_loss.item():.4f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
