"""Train on records from a distant store, fetched by one worker; ``--fixed`` has enough workers fetch them."""

import time

import torch
from _options import parse_args
from _timing import wait_s
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 32
WORKERS, ENOUGH_WORKERS = 1, 6
# A worker fetches a batch in so many times what a step takes.
FETCHING = 2.5


class Records(Dataset):
    """Records of a store that answers after a while, whoever asks."""

    def __init__(self, round_trip_s):
        self.round_trip_s = round_trip_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(self.round_trip_s)
        generator = torch.Generator().manual_seed(index)
        return torch.rand(256, generator=generator), index % 10


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    records, labels = torch.rand(BATCH, 256), torch.randint(10, (BATCH,))
    step_s = wait_s(lambda: step(model, records, labels, criterion, optimizer))
    workers = ENOUGH_WORKERS if args.fixed else WORKERS
    loader = DataLoader(Records(FETCHING * step_s / BATCH), batch_size=BATCH, num_workers=workers)
    train(model, loader, criterion, optimizer, args.seconds)


def step(model, records, labels, criterion, optimizer):
    for _ in range(4):
        loss = criterion(model(records), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(model, loader, criterion, optimizer, seconds):
    started, steps = time.perf_counter(), 0
    for records, labels in loader:
        step(model, records, labels, criterion, optimizer)
        steps += 1
        elapsed = time.perf_counter() - started
        if elapsed > seconds:
            break
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
