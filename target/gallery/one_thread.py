"""Train a wide network in one thread beside idle cores; ``--fixed`` uses a thread for each core."""

import os
import time

import torch
from _options import parse_args
from torch import nn

CORES = len(os.sched_getaffinity(0))


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(CORES if args.fixed else 1)
    model = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, args)


def train(model, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(512, 2048), torch.randint(10, (512,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
