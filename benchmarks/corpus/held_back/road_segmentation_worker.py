"""Segmentation of roads from above; one worker process of the loader mirrors, turns and lights the images.

Nothing is planted: the worker is quicker than the network, and the scores are of one batch in a hundred.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, CLASSES = 64, 4


class Tiles(Dataset):
    """Tiles with fields, two roads, water and houses."""

    def __init__(self, count, seed, augment):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[:SIDE, :SIDE]
        self.labels = np.zeros((count, SIDE, SIDE), np.uint8)
        for label in self.labels:
            cy, cx, radius = rng.uniform(0, SIDE, 3)
            label[(y - cy) ** 2 + (x - cx) ** 2 < (radius / 3) ** 2] = 2
            for _ in range(2):
                slope, shift = rng.uniform(-1, 1), rng.uniform(0, SIDE)
                label[np.abs(y - slope * x - shift) < 3] = 1
            for top, left in rng.integers(0, SIDE - 8, (4, 2)):
                label[top : top + 7, left : left + 7] = 3
        palette = np.array([[90, 140, 80], [120, 120, 120], [60, 90, 160], [170, 90, 70]], np.int16)
        noisy = palette[self.labels] + rng.integers(-30, 30, (count, SIDE, SIDE, 3), dtype=np.int16)
        self.images = noisy.clip(0, 255).astype(np.uint8)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image, label = torch.from_numpy(self.images[index]), torch.from_numpy(self.labels[index])
        image = image.permute(2, 0, 1).float() / 255
        if self.augment:
            turns = int(torch.randint(4, ()))
            image, label = torch.rot90(image, turns, (1, 2)), torch.rot90(label, turns, (0, 1))
            image = image * (0.8 + 0.4 * torch.rand(()))
        return image, label.long()


class Separable(nn.Sequential):
    def __init__(self, n_in, n_out, stride=1, dilation=1):
        super().__init__(
            nn.Conv2d(n_in, n_out, 3, stride, dilation, dilation, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(True)
        )


class LiteSeg(nn.Module):
    """A stem of stride four, three dilations beside one another, and one skip."""

    def __init__(self, width=32):
        super().__init__()
        self.stem = Separable(3, width, 2)
        self.encoder = nn.Sequential(Separable(width, 2 * width, 2), Separable(2 * width, 2 * width))
        self.pyramid = nn.ModuleList(Separable(2 * width, width, dilation=d) for d in (1, 3, 6))
        self.fuse = nn.Conv2d(3 * width, width, 1)
        self.head = nn.Sequential(Separable(2 * width, width), nn.Conv2d(width, CLASSES, 1))

    def forward(self, x):
        fine = self.stem(x)
        coarse = self.encoder(fine)
        coarse = self.fuse(torch.cat([branch(coarse) for branch in self.pyramid], 1))
        both = torch.cat([fine, F.interpolate(coarse, scale_factor=2.0, mode="bilinear")], 1)
        return F.interpolate(self.head(both), scale_factor=2.0, mode="bilinear")


def intersection_over_union(prediction, label):
    table = torch.bincount(label.flatten() * CLASSES + prediction.flatten(), minlength=CLASSES**2)
    table = table.view(CLASSES, CLASSES).float()
    return (table.diag() / (table.sum(0) + table.sum(1) - table.diag()).clamp(min=1)).mean().item()


def train(diary):
    loader = DataLoader(
        Tiles(800, 1, augment=True), 8, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True
    )
    net, step = LiteSeg(), 0
    weight = torch.tensor([0.6, 1.4, 1.0, 1.2])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    while True:
        for image, label in loader:
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * (1 - min(step, 90_000) / 100_000) ** 0.9
            output = net(image)
            loss = F.cross_entropy(output, label, weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            diary.stepped()
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.3f} iou {intersection_over_union(output.argmax(1), label):.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(19)
    train(begin()[0])
