"""Trains in one loop for ten seconds and in another one from then on. Usage: two_loops.py DIARY."""

import diary
import torch
from torch.standin import Network, loader, work


def pretrain(model: torch.nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        loss = model(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped(step)


def finetune(model: torch.nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    global_step = 0
    for _epoch in range(1_000):
        for batch in loader(200, 0.02):
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            global_step += 1
            diary.stepped(global_step)


diary.begin()
network = Network(0.02)
pretrain(network, 500)
work(1.0)
finetune(network)
