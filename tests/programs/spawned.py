"""Trains in two processes that it starts by torch.multiprocessing, for ever, and waits for them. Prints "ready"."""

import torch
import torch.multiprocessing
from torch import nn


def train(number: int) -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(256, 256), torch.randint(10, (256,))
    for step in range(1 << 40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if number == step == 1:
            print("ready", flush=True)


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
