"""Stops every 50 steps of one long epoch for an evaluation, and now and then for a checkpoint.

The evaluation goes over a loader of its own, in a function of its own. Usage: paused_loop.py DIARY.
"""

import diary
import torch
from torch.standin import Network, loader, work


@torch.no_grad()
def estimate_loss(model: torch.nn.Module, val_loader: torch.utils.data.DataLoader) -> float:  # type: ignore[type-arg]
    model.eval()
    losses = 0.0
    for i, batch in enumerate(val_loader):
        losses += model(batch).item() / (i + 1)
    model.train()
    return losses


def train() -> None:
    model = Network(0.04)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    val_loader = loader(60, 0.01)
    for step, batch in enumerate(loader(1_000_000)):
        if step % 50 == 0:
            estimate_loss(model, val_loader)
        if step % 120 == 119:
            work(0.7)
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()
        diary.stepped(step)


diary.begin()
train()
