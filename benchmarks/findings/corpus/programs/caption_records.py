"""Captions that two forked workers look up in a list of 600,000 dictionaries; mended, in an array."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CAPTIONS, LENGTH, WORDS = 600_000, 8, 5_000


class Captions(Dataset):
    def __init__(self, is_mended):
        tokens = np.random.default_rng(0).integers(WORDS, size=(CAPTIONS, LENGTH))
        self.rows = tokens if is_mended else [{"id": at, "tokens": row} for at, row in enumerate(tokens.tolist())]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]  # planted
        return torch.as_tensor(row["tokens"] if isinstance(row, dict) else row)  # planted


def main():
    diary, is_mended = begin()
    loader = DataLoader(Captions(is_mended), batch_size=64, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Embedding(WORDS, 64), nn.Flatten(), nn.Linear(64 * LENGTH, 768), nn.ReLU(), nn.Linear(768, 768),
                          nn.ReLU(), nn.Linear(768, 99))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for tokens in loader:
        loss = nn.functional.cross_entropy(model(tokens), tokens[:, -1] % 99)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    main()
