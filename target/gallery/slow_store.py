"""Train on records from a distant store, fetched by one worker; ``--fixed`` has enough workers fetch them."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORKERS, ENOUGH_WORKERS = 1, 6
ROUND_TRIP_S = 0.002


class Records(Dataset):
    """Records of a store that answers after a while, whoever asks."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(ROUND_TRIP_S)
        generator = torch.Generator().manual_seed(index)
        return torch.rand(256, generator=generator), index % 10


def main():
    args = parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Records(), batch_size=32, num_workers=ENOUGH_WORKERS if args.fixed else WORKERS)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, loader, criterion, optimizer, args.seconds)


def train(model, loader, criterion, optimizer, seconds):
    started, steps = time.perf_counter(), 0
    for records, labels in loader:
        for _ in range(4):
            loss = criterion(model(records), labels)
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
