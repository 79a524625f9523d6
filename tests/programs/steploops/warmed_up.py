"""Warms up in a loop that is counted, and trains in one that nothing counts. Usage: warmed_up.py DIARY.

The warm-up ends where there is a file DIARY.warm.
"""

import os
import sys
import time

import diary
import torch
from torch.standin import Network


def main() -> None:
    model = Network(0.04)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        loss = model([0.5] * 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()

    for _ in range(100_000):
        step()
        if os.path.exists(f"{sys.argv[1]}.warm"):  # noqa: PTH110
            break
    lengths_s = []
    until_s = time.perf_counter() + 60
    while time.perf_counter() < until_s:
        begun_s = time.perf_counter()
        step()
        lengths_s.append(time.perf_counter() - begun_s)


diary.begin()
main()
