"""Train beside a thread that computes in Python; ``--fixed`` has a process of its own compute the same."""

import multiprocessing
import random
import threading
import time

import torch
from _options import parse_args
from torch import nn


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    beside = multiprocessing.get_context("spawn").Process if args.fixed else threading.Thread
    beside(target=estimate, name="estimate", daemon=True).start()
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(100)], nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, args)


def estimate():
    """Estimate a part of a square, without an end."""
    inside = 0
    while True:
        inside += random.random() ** 2 + random.random() ** 2 < 1


def train(model, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(256, 64), torch.randint(10, (256,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
