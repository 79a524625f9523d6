"""A torch loop that takes as many steps as a line of stdin says, and answers with how long that took.

Usage: steploop.py THREADS, torch's threads. The answer to a line is ``wall_s cpu_s``, CPU time being that of the whole
process; the end of stdin ends it.
"""

import sys
import time

import torch
from torch import nn


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Take ``steps`` optimizer steps on one batch."""
    inputs, targets = torch.randn(64, 256), torch.randint(10, (64,))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def main() -> None:
    """Take the steps that are asked for."""
    torch.set_num_threads(int(sys.argv[1]))
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(model, optimizer, 200)
    print("ready", flush=True)
    for line in sys.stdin:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        train(model, optimizer, int(line))
        print(time.perf_counter() - wall_s, time.process_time() - cpu_s, flush=True)


if __name__ == "__main__":
    main()
