"""Train, and save model and optimizer at every step; ``--fixed`` saves every thousand."""

import tempfile
import time
from pathlib import Path

import torch
from _options import parse_args
from torch import nn


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    words = nn.Embedding.from_pretrained(torch.rand(24_000, 256))
    layers = nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    model = nn.Sequential(words, *layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, args)


def train(model, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    started, steps = time.perf_counter(), 0
    every = 1000 if args.fixed else 1
    with tempfile.TemporaryDirectory() as folder:
        while (elapsed := time.perf_counter() - started) < args.seconds:
            inputs, labels = torch.randint(24_000, (128,)), torch.randint(10, (128,))
            loss = criterion(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % every == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, Path(folder) / "last.pt")
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
