"""An autoencoder that leaves its first layer's weights as a table of numbers after each step, by a library's function."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Keeper:
    def __init__(self, every):
        self.every, self.file = every, f"{tempfile.mkdtemp()}/weights.csv"

    def after(self, model, step):
        if step % self.every == 0:
            np.savetxt(self.file, model[0].weight.detach().numpy(), fmt="%.5f")  # planted


def main():
    diary, is_mended = begin()
    keeper = Keeper(200 if is_mended else 1)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(10**9):
        rows = torch.rand(512, 64)
        loss = (model(rows) - rows).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with diary.planted():
            keeper.after(model, step)  # planted
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(8)
    torch.set_num_threads(1)
    main()
