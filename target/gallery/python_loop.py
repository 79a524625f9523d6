"""Train with a penalty that is summed up number by number; ``--fixed`` sums up whole tensors."""

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
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(256, 256), torch.randint(10, (256,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        spread(inputs, args.fixed)
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


def spread(inputs, fixed):
    """Return how far the inputs are from their mean."""
    if fixed:
        return ((inputs - inputs.mean()) ** 2).mean()
    values = inputs.flatten().tolist()
    mean, total = sum(values) / len(values), 0.0
    for value in values * 12:
        distance = value - mean
        total += distance * distance
    return total / len(values) / 12


if __name__ == "__main__":
    main()
