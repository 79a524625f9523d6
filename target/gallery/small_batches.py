"""Train in batches of 8, each with a step of the optimizer; ``--fixed`` trains in batches of 256.

Steps are counted in batches of 8, so that as many of them are as many samples.
"""

import time

import torch
from _options import parse_args
from torch import nn

SMALL, LARGE = 8, 256


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(16)], nn.Linear(256, 10))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)
    train(model, optimizer, args)


def train(model, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    size = LARGE if args.fixed else SMALL
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(size, 256), torch.randint(10, (size,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += size // SMALL
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
