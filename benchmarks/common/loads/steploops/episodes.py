"""Steps in episodes of 9 steps and more, which nothing counts. Usage: episodes.py DIARY."""

import random

import diary
import torch
from torch.standin import Network


def play(model: torch.nn.Module, optimizer: torch.optim.Optimizer, duration: int) -> None:
    for t in range(10_000):
        loss = model([0.5] * 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped(t)
        if t + 1 == duration:
            break


def main() -> None:
    chance = random.Random(5)
    model = Network(0.015)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    while True:
        play(model, optimizer, 9 + int(chance.expovariate(1 / 20)))


diary.begin()
main()
