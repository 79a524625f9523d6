"""Makes steps of five milliseconds, without end. Usage: quick_loop.py DIARY."""

import diary
import torch
from torch.standin import Network


def train() -> None:
    model = Network(0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(100_000_000):
        loss = model(None)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped(i)


diary.begin()
train()
