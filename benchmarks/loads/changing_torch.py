"""A small training whose functions do a fixed amount of work each, one of them more of it: what diffs are tried on.

Usage: changing_torch.py SECONDS [ROUNDS]. ``augment`` does so many rounds of its work, 30 unless given: a third of
a step. Prints the steps that it made and the seconds that they took.
"""

from __future__ import annotations

import random
import sys
import time

import torch
from torch import nn

ROUNDS = 30


def decode(chance: random.Random) -> torch.Tensor:
    """Make pictures, some larger than others."""
    return torch.rand(16, 3, 32, chance.randrange(32, 64))


def augment(pictures: torch.Tensor, rounds: int) -> torch.Tensor:
    """Do what one of two runs does more of."""
    for _ in range(rounds):
        pictures = (pictures.flip(3) * 1.1 - 0.05).clamp(0, 1)
        pictures = pictures - pictures.mean((2, 3), keepdim=True)
    return pictures[:, :, :, :32].contiguous()


def train(seconds: float, rounds: int) -> tuple[int, float]:
    """Step until the time is over; returns how often, and how long that took."""
    chance = random.Random(1)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.Flatten(), nn.Linear(6272, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    labels = torch.randint(10, (16,))
    started = time.monotonic()
    step = 0
    while (elapsed := time.monotonic() - started) < seconds:
        pictures = augment(decode(chance), rounds)
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
    return step, elapsed


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    print(*train(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS))
