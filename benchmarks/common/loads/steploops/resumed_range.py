"""Goes on from a checkpoint at step 5,000, through ``range(start, n)``. Usage: resumed_range.py DIARY."""

import diary
import torch
from torch.standin import Network, work


def load_checkpoint() -> int:
    work(0.5)
    return 5_000


def train() -> None:
    model = Network(0.035)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = load_checkpoint()
    for step in range(start, 1_000_000):
        optimizer.zero_grad()
        loss = model([0.5] * 8)
        loss.backward()
        optimizer.step()
        diary.stepped(step)


diary.begin()
train()
