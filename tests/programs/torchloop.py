"""Trains a network of a few layers for ever, some tens of steps a second. Prints "ready" after the first steps."""

import torch
from torch import nn


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    inputs, targets = torch.randn(256, 3, 16, 16), torch.randint(10, (256,))
    step = 0
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        if step == 5:
            print("ready", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2304, 10),
    )
    train(model, torch.optim.Adam(model.parameters(), lr=1e-3))


main()
