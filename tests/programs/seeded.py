"""Trains with a fixed seed and says the loss of every step, to the last bit, with the seconds that the step took.

    seeded.py         until a line comes on stdin, with a pause after each step: a window of a second has some hundred
    seeded.py STEPS

Prints "ready" after the third step, and the losses at the end.
"""

from __future__ import annotations

import sys
import threading
import time

import torch
from torch import nn

FOR_EVER = 1 << 40
PAUSE_S = 0.005


def wait_for_line(over: threading.Event) -> None:
    sys.stdin.readline()
    over.set()


def main(steps: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(1568, 10)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    over = threading.Event()
    if steps == FOR_EVER:
        threading.Thread(target=wait_for_line, args=(over,), daemon=True).start()
    said: list[str] = []
    while len(said) < steps and not over.is_set():
        begun = time.perf_counter()
        loss = nn.functional.cross_entropy(model(torch.randn(16, 3, 16, 16)), torch.randint(10, (16,)))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        said.append(f"{float(loss.detach()).hex()} {time.perf_counter() - begun:.6f}")
        if len(said) == 3:
            print("ready", flush=True)
        if steps == FOR_EVER:
            time.sleep(PAUSE_S)
    print("\n".join(said))


main(int(sys.argv[1]) if len(sys.argv) > 1 else FOR_EVER)
