"""Train in short epochs, with a worker started anew for each; ``--fixed`` keeps the worker."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS_AN_EPOCH, BATCH = 40, 32
OPENING_S = 1.2


class Records(Dataset):
    """Records of a file that each process opens when it needs the first of them."""

    file = None

    def __len__(self):
        return STEPS_AN_EPOCH * BATCH

    def __getitem__(self, index):
        if self.file is None:
            time.sleep(OPENING_S)
            self.file = "open"
        generator = torch.Generator().manual_seed(index)
        return torch.rand(256, generator=generator), index % 10


def main():
    args = parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Records(), batch_size=BATCH, num_workers=1, persistent_workers=args.fixed)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, loader, criterion, optimizer, args.seconds)


def train(model, loader, criterion, optimizer, seconds):
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        for records, labels in loader:
            for _ in range(8):
                loss = criterion(model(records), labels)
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
