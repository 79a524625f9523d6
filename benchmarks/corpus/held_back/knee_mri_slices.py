"""Cartilage on knee scans, slice by slice, with an attention U-Net and an epoch loop as in references of torchvision.

Each slice is windowed by percentiles of its scan.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def made_up_scan(rng, depth=100, size=80):
    """Return a scan as the scanner stores it, and the mask of a blob that moves through its slices."""
    ys, xs = np.mgrid[:size, :size]
    scan = rng.gamma(2.0, 180.0, (depth, size, size))
    mask = np.zeros((depth, size, size), dtype=bool)
    cy, cx = rng.uniform(25, 55, 2)
    for place in range(depth):
        cy, cx = cy + rng.normal(0, 1), cx + rng.normal(0, 1)
        ring = np.hypot(ys - cy, 1.4 * (xs - cx))
        mask[place] = (ring > 11) & (ring < 16)
        scan[place] += 900 * mask[place] + 250 * (ring < 11)
    return scan.astype(np.int16), mask


class KneeSlices(Dataset):
    """Slices of scans with their neighbours as channels."""

    def __init__(self, scans, diary, is_mended):
        self.scans = [scan for scan, _ in scans]
        self.masks = [mask for _, mask in scans]
        self.places = [(number, place) for number, (scan, _) in enumerate(scans) for place in range(1, len(scan) - 1)]
        self.diary = diary
        self.windows = [self.window(scan) for scan in self.scans] if is_mended else None

    def __len__(self):
        return len(self.places)

    @staticmethod
    def window(scan):
        return np.percentile(scan, (1.0, 99.5))  # planted

    def __getitem__(self, index):
        number, place = self.places[index]
        if self.windows is not None:
            low, high = self.windows[number]
        else:
            with self.diary.planted():
                low, high = self.window(self.scans[number])  # planted
        image = self.scans[number][place - 1 : place + 2].astype(np.float32)
        image = (np.clip(image, low, high) - low) / (high - low)
        return torch.from_numpy(image.astype(np.float32)), torch.from_numpy(self.masks[number][place])


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.score = nn.Conv2d(width, 8, 1), nn.Conv2d(width, 8, 1), nn.Conv2d(8, 1, 1)

    def forward(self, skip, coarse):
        return skip * torch.sigmoid(self.score(F.relu(self.query(coarse) + self.key(skip))))


class AttentionUNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        widths = [width, 2 * width, 3 * width]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True))
        self.lift = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairwise(widths))
        self.gates = nn.ModuleList(Gate(a) for a in widths[:-1])
        self.up = nn.ModuleList(block(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        skips = []
        for stage in self.down[:-1]:
            x = stage(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.down[-1](x)
        for level in reversed(range(len(skips))):
            x = self.lift[level](x)
            x = self.up[level](torch.cat([self.gates[level](skips[level], x), x], 1))
        return self.head(x)[:, 0]


def criterion(logits, mask):
    chance, mask = logits.sigmoid(), mask.float()
    dice = 1 - (2 * (chance * mask).sum((1, 2)) + 1) / (chance.sum((1, 2)) + mask.sum((1, 2)) + 1)
    return dice.mean() + F.binary_cross_entropy_with_logits(logits, mask)


def train_one_epoch(model, optimizer, loader, epoch, diary):
    model.train()
    total = torch.zeros(())
    for images, masks in loader:  # planted
        loss = criterion(model(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        diary.stepped()
    print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}", flush=True)


def main():
    diary, is_mended = begin()
    rng = np.random.default_rng(11)
    dataset = KneeSlices([made_up_scan(rng) for _ in range(12)], diary, is_mended)
    loader = DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)
    model = AttentionUNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    epoch = 0
    while True:
        train_one_epoch(model, optimizer, loader, epoch, diary)
        epoch += 1


if __name__ == "__main__":
    torch.manual_seed(11)
    torch.set_num_threads(1)
    main()
