"""Steps through ``while step < n``, and counts samples beside. Usage: while_loop.py DIARY."""

import random

import diary
import torch
from torch.standin import Network


def train(steps: int) -> None:
    model = Network(0.04)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = samples_seen = correct = 0
    while step < steps:
        loss = model([0.5] * 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples_seen += 32
        correct += random.randrange(32)
        step += 1
        diary.stepped(step)


diary.begin()
train(1_000_000)
