"""Accumulates gradients in a loop of its own, ``for micro_step in range(n)``. Usage: micro_steps.py DIARY."""

import diary
import torch
from torch.standin import Network, loader

ACCUMULATION = 4


def train() -> None:
    model = Network(0.015)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(loader(4_000_000, 0.002))
    for step in range(1_000_000):
        for micro_step in range(ACCUMULATION):
            loss = model(next(batches), micro_step) / ACCUMULATION
            loss.backward()
            diary.batched()
        optimizer.step()
        optimizer.zero_grad()
        diary.stepped(step)


diary.begin()
train()
