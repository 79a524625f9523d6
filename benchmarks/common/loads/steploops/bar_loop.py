"""Steps through batches without end, and moves a bar of tqdm by hand, its only count. Usage: bar_loop.py DIARY."""

import itertools
import os

import diary
import torch
from torch.standin import Network, loader
from tqdm import tqdm


def train() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        bar = tqdm(total=100_000, file=nowhere)
        for batch in itertools.cycle(loader(50, 0.002)):
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            optimizer.step()
            bar.update(1)
            diary.stepped()


diary.begin()
train()
