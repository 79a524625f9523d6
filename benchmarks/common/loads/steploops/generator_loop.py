"""Steps through what a generator makes, ``for x in batches()``; nothing counts. Usage: generator_loop.py DIARY."""

from __future__ import annotations

import random
from collections.abc import Iterator

import diary
import torch
from torch.standin import Network, work


def batches() -> Iterator[list[float]]:
    while True:
        work(0.01)
        yield [random.random() for _ in range(8)]


def train() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in batches():
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        diary.stepped()


diary.begin()
train()
