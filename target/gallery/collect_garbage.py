"""Train beside many Python objects, and collect garbage at every step; ``--fixed`` does so at every thousandth."""

import gc
import time

import torch
from _options import parse_args
from torch import nn


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    records = [[number] for number in range(300_000)]
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, records, args)


def train(model, optimizer, records, args):
    criterion = nn.CrossEntropyLoss()
    every = 1000 if args.fixed else 1
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(256, 256), torch.randint(10, (256,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % every == 0:
            gc.collect()
    print(f"{steps} steps at {steps / elapsed:.2f}/s, {len(records)} records")


if __name__ == "__main__":
    main()
