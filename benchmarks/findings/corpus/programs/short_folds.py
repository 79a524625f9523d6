"""A regression on small folds, each with a loader of its own: two workers are forked for six batches, and end after them."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BATCHES, ROWS = 6, 64


def fold_of(seed, keeps):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(BATCHES * ROWS, 32, generator=generator)
    fold = TensorDataset(features, features.square().mean(1, keepdim=True))
    return DataLoader(fold, ROWS, num_workers=2, persistent_workers=keeps)


def main():
    diary, is_mended = begin()
    model = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    folds = [fold_of(seed, is_mended) for seed in range(2)]
    while True:
        for fold in folds:
            for features, target in fold:  # planted
                for _ in range(8):
                    loss = nn.functional.mse_loss(model(features), target)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    main()
