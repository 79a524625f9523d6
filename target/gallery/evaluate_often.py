"""Train, and evaluate every twenty steps; ``--fixed`` evaluates every five hundred."""

import time

import torch
from _options import parse_args
from torch import nn


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, args)


def train(model, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    every = 500 if args.fixed else 20
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(256, 256), torch.randint(10, (256,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % every == 0:
            evaluate(model, criterion)
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


@torch.no_grad()
def evaluate(model, criterion):
    inputs, labels = torch.rand(256, 256), torch.randint(10, (256,))
    return sum(criterion(model(inputs), labels) for _ in range(100)) / 100


if __name__ == "__main__":
    main()
