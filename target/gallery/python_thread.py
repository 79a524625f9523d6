"""Train beside a thread that computes in Python; ``--fixed`` has a process of its own compute the same."""

import argparse
import multiprocessing
import random
import threading
import time

import torch
from torch import nn


def main():
    args = parse_args()
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


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true", help="train without the bottleneck")
    parser.add_argument("--seconds", type=float, default=60, help="how long to train (default: 60)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
