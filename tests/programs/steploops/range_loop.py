"""Steps through ``for i in range(n)``, each step with loops over layers in it. Usage: range_loop.py DIARY."""

import diary
import torch
from torch.standin import Network, work


def penalty(layers: int) -> float:
    total = 0.0
    for layer in range(layers):
        work(0.002 + 0.0001 * layer)
        total += layer
    return total


def train() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1_000_000):
        loss = model([0.5] * 8) * (1.0 + penalty(8))
        optimizer.zero_grad()
        loss.backward()
        for group in range(4):
            work(0.001 * group)
        optimizer.step()
        diary.stepped(step)


diary.begin()
train()
