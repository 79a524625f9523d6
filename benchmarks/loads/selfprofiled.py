"""Trains a few steps under a profiler of its own, which leaves its traces where TensorBoard and HTA look for them.

selfprofiled.py FOLDER
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.profiler import profile, schedule, tensorboard_trace_handler

STEPS = 3


def main(folder: str) -> None:
    """Train, and leave one trace of ``STEPS`` steps."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 10))
    optimizer = torch.optim.Adam(model.parameters())
    handler = tensorboard_trace_handler(folder)
    with profile(schedule=schedule(wait=1, warmup=1, active=STEPS), on_trace_ready=handler, record_shapes=True) as own:
        for _ in range(STEPS + 3):
            loss = nn.functional.cross_entropy(model(torch.randn(16, 3, 16, 16)), torch.randint(10, (16,)))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            own.step()


if __name__ == "__main__":
    main(sys.argv[1])
