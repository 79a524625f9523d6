"""Steps through ``for i, x in enumerate(...)``, all in one epoch. Usage: enumerate_loop.py DIARY."""

import diary
import torch
from torch.standin import Network, loader


def train() -> None:
    model = Network(0.04)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for i, batch in enumerate(loader(1_000_000, 0.01)):
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / (i + 1)
        diary.stepped(i)


diary.begin()
train()
