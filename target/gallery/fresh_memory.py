"""Train a model that scales a signal into new memory at each step; ``--fixed`` uses the same memory for all of them."""

import time

import torch
from _options import parse_args
from torch import nn


class Scale(nn.Module):
    """Twice a signal, the beginning of which is the batch."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def forward(self, signal):
        scaled = torch.mul(signal, 2, out=self.room)
        return scaled[: 32 * 256].view(32, 256)


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    signal = torch.rand(16_000_000)
    scale = Scale(torch.empty_like(signal) if args.fixed else None)
    layers = nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    model = nn.Sequential(scale, *layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, signal, optimizer, args)


def train(model, signal, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        loss = criterion(model(signal), torch.randint(10, (32,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
