"""Train in short epochs, with a worker started anew for each; ``--fixed`` keeps the worker."""

import time

import torch
from _options import parse_args
from _timing import wait_s
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS_AN_EPOCH, BATCH = 40, 32
# The file opens in so many times what the steps of an epoch take.
OPENING = 1.5


class Records(Dataset):
    """Records of a file that each process opens when it needs the first of them."""

    def __init__(self, opening_s):
        self.opening_s, self.file = opening_s, None

    def __len__(self):
        return STEPS_AN_EPOCH * BATCH

    def __getitem__(self, index):
        if self.file is None:
            time.sleep(self.opening_s)
            self.file = "open"
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
    dataset = Records(OPENING * STEPS_AN_EPOCH * step_s)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=1, persistent_workers=args.fixed)
    train(model, loader, criterion, optimizer, args.seconds)


def step(model, records, labels, criterion, optimizer):
    for _ in range(8):
        loss = criterion(model(records), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(model, loader, criterion, optimizer, seconds):
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        for records, labels in loader:
            step(model, records, labels, criterion, optimizer)
            steps += 1
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
