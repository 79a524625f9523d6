"""Train a small network whose images are prepared between the steps; ``--fixed`` has a worker prepare them."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    """Images that are computed when they are asked for."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, 32, 32, generator=generator)
        for _ in range(60):
            image = torch.roll(image, 1, dims=1).sort(dim=2).values
        return image, index % 10


def main():
    args = parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Textures(), batch_size=32, num_workers=1 if args.fixed else 0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 64, 10),
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, loader, criterion, optimizer, args.seconds)


def train(model, loader, criterion, optimizer, seconds):
    started, steps = time.perf_counter(), 0
    for images, labels in loader:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        elapsed = time.perf_counter() - started
        if elapsed > seconds:
            break
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true", help="train without the bottleneck")
    parser.add_argument("--seconds", type=float, default=60, help="how long to train (default: 60)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
