"""Trains for a time in short epochs, each with new DataLoader workers, and prints a line an epoch.

Usage: epochs.py SECONDS [WORKERS [EPOCH_S]]. What a long training does to a profiler: processes that come and go,
output, and the same stacks again and again.
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCH_S = 10.0


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Random pictures of ten kinds, slow to make."""

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.004)
        return torch.full((256,), float(index % 7)), index % 10


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, workers: int, epoch_s: float) -> int:
    """Train for so many seconds with new workers; returns the number of steps."""
    until = time.monotonic() + epoch_s
    for step, (inputs, targets) in enumerate(DataLoader(Pictures(), batch_size=16, num_workers=workers), start=1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if time.monotonic() > until:
            return step
    return 0


def main(seconds: float, workers: int = 2, epoch_s: float = EPOCH_S) -> None:
    """Train epoch after epoch."""
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    print("ready", flush=True)
    started, epoch = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        steps = train_epoch(model, optimizer, workers, epoch_s)
        epoch += 1
        print(f"epoch {epoch}: {steps} steps", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), *map(int, sys.argv[2:3]), *map(float, sys.argv[3:4]))
