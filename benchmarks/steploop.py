"""A torch loop of a fixed number of steps that prints how many seconds they took. Usage: steploop.py STEPS THREADS."""

import sys
import time

import torch
from torch import nn


def train(steps: int) -> None:
    """Take ``steps`` optimizer steps on one batch."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(64, 256), torch.randint(10, (64,))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    train(200)
    started = time.perf_counter()
    train(int(sys.argv[1]))
    print(time.perf_counter() - started, flush=True)
