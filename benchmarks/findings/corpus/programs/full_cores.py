"""Two workers render glyphs by Python and fill both cores: a third one would only share them."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE = 28


def render(index):
    picture = torch.zeros(SIDE, SIDE)
    for row in range(SIDE):
        for column in range(SIDE):
            picture[row, column] = (row * index + column) % 7 / 7  # planted
    return picture


class Glyphs(Dataset):
    def __init__(self, is_mended):
        self.kept = [render(index) for index in range(64)] if is_mended else None

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        picture = render(index % 64) if self.kept is None else self.kept[index % 64]  # planted
        return picture, index % 7


def main():
    diary, is_mended = begin()
    loader = DataLoader(Glyphs(is_mended), batch_size=32, num_workers=2)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE * SIDE, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 7)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)
    for pictures, labels in loader:  # planted
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(10)
    torch.set_num_threads(1)
    main()
