"""Steps through what a generator makes, and counts beside; so does the generator. Usage: counted_generator.py DIARY."""

from __future__ import annotations

from collections.abc import Iterator

import diary
import torch
from torch.standin import Network, work


def batches(samples: list[float], size: int) -> Iterator[list[float]]:
    position = 0
    while True:
        work(0.01)
        yield samples[position : position + size]
        position = (position + size) % len(samples)


def train() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    for x in batches([0.5] * 1024, 8):
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        step += 1  # noqa: SIM113
        diary.stepped(step)


diary.begin()
train()
