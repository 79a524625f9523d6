"""Steps in epochs of a minute, each of 1,500 steps. Usage: long_epochs.py DIARY."""

import diary
import torch
from torch.standin import Network, loader, work


def train_epoch(model: torch.nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> float:
    total = 0.0
    for batch_idx, batch in enumerate(loader(1_500, 0.01)):
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()
        total += loss.item() * epoch
        diary.stepped(batch_idx)
    return total


def main() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1, 1_001):
        train_epoch(model, optimizer, epoch)
        work(1.0)


diary.begin()
main()
