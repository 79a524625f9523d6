"""Accumulates gradients, and updates where ``(i + 1) % accumulation == 0``. Usage: modulo_accumulation.py DIARY."""

import diary
import torch
from torch.standin import Network, loader

ACCUMULATION = 4


def train() -> None:
    model = Network(0.025)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    updates = 0
    for i, batch in enumerate(loader(1_000_000, 0.005)):
        loss = model(batch) / ACCUMULATION
        loss.backward()
        diary.batched()
        if (i + 1) % ACCUMULATION == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            diary.stepped(updates)


diary.begin()
train()
