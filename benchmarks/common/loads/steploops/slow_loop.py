"""Makes steps of three seconds, without end. Usage: slow_loop.py DIARY."""

import diary
import torch
from torch.standin import Network


def train() -> None:
    model = Network(3.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for iteration in range(100_000_000):
        loss = model(None)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped(iteration)


diary.begin()
train()
