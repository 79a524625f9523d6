"""Steps through ``for batch in tqdm(loader)``, and names no counter of its own. Usage: tqdm_loop.py DIARY."""

import os

import diary
import torch
from torch.standin import Network, loader
from tqdm import tqdm


def train() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        for batch in tqdm(loader(1_000_000, 0.02), file=nowhere):
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()


diary.begin()
train()
