"""Evaluates every 100 steps, in a loop of the same function that takes the name of the counter.

Usage: evaluating_loop.py DIARY.
"""

import diary
import torch
from torch.standin import Network, loader


def main() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_loader, val_loader = loader(100, 0.005), loader(80, 0.005)
    for _epoch in range(1_000):
        model.train()
        for step, batch in enumerate(train_loader):
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            optimizer.step()
            diary.stepped(step)
        model.eval()
        total = 0.0
        with torch.no_grad():
            for step, batch in enumerate(val_loader):
                total += model(batch).item() / (step + 1)


diary.begin()
main()
