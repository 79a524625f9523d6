"""Goes on from step 5,000, through ``while step < n``. Usage: resumed_while.py DIARY."""

import diary
import torch
from torch.standin import Network, loader

CHECKPOINT = {"step": 5_000, "lr": 0.1}


def train(max_steps: int) -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=CHECKPOINT["lr"])
    batches = iter(loader(max_steps, 0.005))
    step = CHECKPOINT["step"]
    while step < max_steps:
        loss = model(next(batches))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        diary.stepped(int(step))


diary.begin()
train(1_000_000)
