"""Trains in two processes that it starts by torch.multiprocessing, for ever, and waits for them. Prints "ready".

With a file, which must not exist yet, they are the ranks of one job, and meet through that file.
"""

import sys

import torch
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(number: int, files: list[str]) -> None:
    torch.set_num_threads(1)
    model: nn.Module = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    for file in files:
        torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=number, world_size=2)
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(256, 256), torch.randint(10, (256,))
    for step in range(1 << 40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if number == step == 1:
            print("ready", flush=True)


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=(sys.argv[1:],), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
