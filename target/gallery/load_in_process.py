"""Train a small network whose images are prepared between the steps; ``--fixed`` has workers prepare them."""

import os
import time

import torch
from _options import parse_args
from _timing import work_s
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 32
# Loading takes so many times what a step takes: one worker keeps up with it.
LOADING = 0.75
SPARE_CORES = max(len(os.sched_getaffinity(0)) - 1, 1)


class Textures(Dataset):
    """Images that are computed in so many turns when they are asked for."""

    def __init__(self, turns):
        self.turns = turns

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, 32, 32, generator=generator)
        for _ in range(self.turns):
            image = torch.roll(image, 1, dims=1).sort(dim=2).values
        return image, index % 10


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    layers = [nn.Conv2d(3, 64, 4, stride=4), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 64, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    step_s = work_s(lambda: step(model, images, labels, criterion, optimizer))
    turns = round(20 * LOADING * step_s / BATCH / work_s(lambda: Textures(turns=20)[0]))
    workers = min(SPARE_CORES, 4) if args.fixed else 0
    loader = DataLoader(Textures(max(turns, 1)), batch_size=BATCH, num_workers=workers)
    train(model, loader, criterion, optimizer, args.seconds)


def step(model, images, labels, criterion, optimizer):
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(model, loader, criterion, optimizer, seconds):
    started, steps = time.perf_counter(), 0
    for images, labels in loader:
        step(model, images, labels, criterion, optimizer)
        steps += 1
        elapsed = time.perf_counter() - started
        if elapsed > seconds:
            break
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
