"""Micro-batches in a loop of their own; the optimizer, hidden and quick, counts itself. Usage: outer_counter.py DIARY.

The loop of the micro-batches is seen long before the optimizer's step around it.
"""

import diary
import torch
from torch.standin import Network, work


class Fit:
    def __init__(self) -> None:
        self.model = Network(0.025)
        self.model.weight.seconds = 0.001
        self.sgd = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.updates = 600

    def gradients(self) -> None:
        for _part in range(4):
            self.model([0.5] * 8).backward()
            diary.batched()

    def run(self) -> None:
        while True:
            self.gradients()
            self.apply()
            self.updates += 1
            diary.stepped(self.updates)

    def apply(self) -> None:
        work(0.002)
        self.sgd.step()
        self.sgd.zero_grad()


diary.begin()
Fit().run()
