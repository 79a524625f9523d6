"""Durations of taxi rides by a wide and deep network; two times a row are read from text in each epoch."""

import os
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

FORMAT = "%Y-%m-%d %H:%M:%S"


def time_features(booked, pickup):
    booked_at, picked_at = datetime.strptime(booked, FORMAT), datetime.strptime(pickup, FORMAT)  # planted
    day = picked_at.hour / 24 + picked_at.minute / 1440
    return [day, picked_at.weekday() / 6, picked_at.month / 12, (picked_at - booked_at).total_seconds() / 3600]


class Rides(Dataset):
    """Rows of a table as they are in its file: times are text."""

    def __init__(self, count):
        start = datetime(2023, 1, 1)
        self.rows = []
        for _ in range(count):
            pickup = start + timedelta(seconds=random.randrange(365 * 86_400))
            booked = pickup - timedelta(seconds=random.randrange(60, 3600))
            zones = (random.randrange(260), random.randrange(260))
            distance = abs(zones[0] - zones[1]) / 10 + random.random()
            slow = 1.5 if pickup.hour in (8, 9, 17, 18) else 1.0
            row = (booked.strftime(FORMAT), pickup.strftime(FORMAT), *zones, distance, distance * slow)
            self.rows.append(row)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class ReadRides(Rides):
    """The same with the times read once."""

    def __init__(self, count):
        super().__init__(count)
        self.rows = [(time_features(*row[:2]), None, *row[2:]) for row in self.rows]


class WideDeep(nn.Module):
    def __init__(self, dim=32, hidden=384):
        super().__init__()
        self.zones = nn.Embedding(260, dim)
        self.wide = nn.Embedding(260 * 26, 1)
        self.deep = nn.Sequential(
            nn.Linear(2 * dim + 5, hidden),
            nn.ReLU(),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, 1),
        )

    def forward(self, zones, numbers):
        crossed = self.wide(zones[:, 0] * 26 + zones[:, 1] // 10)
        return (self.deep(torch.cat([self.zones(zones).flatten(1), numbers], 1)) + crossed).squeeze(1)


class Trainer:
    def __init__(self, model, lr):
        self.model, self.loss_fn = model, nn.HuberLoss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.seen, self.running = 0, 0.0

    def train_batch(self, columns, times):
        _, _, origins, destinations, distances, durations = columns
        zones = torch.tensor([origins, destinations]).T
        numbers = torch.cat([torch.tensor(times), torch.tensor(distances)[:, None]], 1)
        loss = self.loss_fn(self.model(zones, numbers), torch.tensor(durations))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.seen += 1
        if self.seen % 100 == 0:
            self.running = loss.item()
            print(f"batch {self.seen} huber {self.running:.4f}", flush=True)


def to_columns(rows):
    return tuple(zip(*rows, strict=True))


def main(diary, is_mended):
    rides = (ReadRides if is_mended else Rides)(20_000)
    loader = DataLoader(rides, 1024, shuffle=True, drop_last=True, collate_fn=to_columns)
    trainer = Trainer(WideDeep(), 1e-3)
    while True:
        for columns in loader:
            if is_mended:
                times = columns[0]
            else:
                with diary.planted():
                    times = [time_features(*pair) for pair in zip(columns[0], columns[1], strict=True)]  # planted
            trainer.train_batch(columns, times)
            diary.stepped()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(21)
    random.seed(21)
    main(*begin())
