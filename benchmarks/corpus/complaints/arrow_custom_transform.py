"""A classifier of small maps whose dataset turns each map into Python lists and back, once a transform of the user's is set.

Complaint: huggingface/datasets, issue 6833, "Super slow iteration with trivial custom transform" (and 5841): with ``set_transform`` a row comes as
lists of Python instead of an array, 9.78 s instead of 0.79 s for 1000 rows, though the transform returns what it is given. Fix: set the format to
NumPy, so that arrays stay arrays. The dataset here has the structure of ``datasets``: a table, a formatter, and a transform.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE = 32


class PythonFormatter:
    def format_row(self, row):
        return {key: value.tolist() for key, value in row.items()}  # planted


class NumpyFormatter:
    def format_row(self, row):
        return row


class Table:
    def __init__(self, formatter, diary):
        self.formatter, self.diary, self.transform = formatter, diary, None
        self.maps = np.random.default_rng(22).normal(size=(512, SIDE, SIDE)).astype("float32")

    def with_transform(self, transform):
        self.transform = transform
        return self

    def __len__(self):
        return 512

    def __getitem__(self, index):
        row = {"map": self.maps[index], "label": np.asarray(index % 5)}
        with self.diary.planted():
            return self.transform(self.formatter.format_row(row))  # planted


def as_tensors(row):
    return {key: torch.tensor(value) for key, value in row.items()}  # planted


def main():
    diary, is_mended = begin()
    table = Table(NumpyFormatter() if is_mended else PythonFormatter(), diary).with_transform(as_tensors)
    loader = DataLoader(table, batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 5),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        for batch in loader:  # planted
            loss = nn.functional.cross_entropy(model(batch["map"][:, None]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(22)
    torch.set_num_threads(1)
    main()
