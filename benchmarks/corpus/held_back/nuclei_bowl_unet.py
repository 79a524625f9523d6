"""Segmentation of nuclei as in a competition: each nucleus is text of runs, read whenever its image is drawn."""

import itertools
import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIZE = 64


def to_runs(mask):
    """Write a mask as `start length start length ...`, column by column and counted from one."""
    flat = np.concatenate([[0], mask.T.ravel(), [0]])
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges[1::2] -= edges[::2]
    return " ".join(map(str, edges))


def from_runs(text):
    mask = np.zeros(SIZE * SIZE, dtype=np.uint8)
    numbers = [int(word) for word in text.split()]  # planted
    for start, length in zip(numbers[::2], numbers[1::2], strict=True):  # planted
        mask[start - 1 : start - 1 + length] = 1  # planted
    return mask.reshape(SIZE, SIZE).T


class Nuclei:
    def __init__(self, count, rng):
        y, x = np.mgrid[:SIZE, :SIZE]
        self.images, self.annotations = 0.1 * rng.standard_normal((count, SIZE, SIZE)), []
        for image in self.images:
            runs = []
            for _ in range(120):
                (cy, cx), radius = rng.uniform(0, SIZE, 2), rng.uniform(2, 4)
                nucleus = ((y - cy) ** 2 + (x - cx) ** 2 < radius**2).astype(np.uint8)
                image += 0.3 * nucleus
                runs.append(to_runs(nucleus))
            self.annotations.append(runs)
        self.images = self.images.astype(np.float32)

    def mask(self, index):
        mask = np.zeros((SIZE, SIZE), dtype=np.uint8)
        for text in self.annotations[index]:
            mask |= from_runs(text)  # planted
        return mask


class ReadNuclei(Nuclei):
    """Reads the runs once."""

    def __init__(self, count, rng):
        super().__init__(count, rng)
        self.masks = np.stack([super(ReadNuclei, self).mask(index) for index in range(count)])

    def mask(self, index):
        return self.masks[index]


def double_conv(n_in, n_out):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(inplace=True),
        nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """A UNet at half the resolution, which is enough for round things."""

    def __init__(self, widths=(16, 32, 64)):
        super().__init__()
        self.stem = nn.Conv2d(1, widths[0], 4, 2, 1)
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip((widths[0], *widths), widths, strict=False))
        self.up = nn.ModuleList(double_conv(a + b, a) for a, b in itertools.pairwise(widths))
        self.head = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        kept, x = [], self.stem(x)
        for level in self.down:
            x = level(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for level, skip in zip(reversed(self.up), reversed(kept[:-1]), strict=True):
            x = level(torch.cat([skip, F.interpolate(x, scale_factor=2)], 1))
        return F.interpolate(self.head(x), scale_factor=2, mode="bilinear").squeeze(1)


def dice_bce(logits, masks):
    probs = logits.sigmoid()
    dice = 1 - (2 * (probs * masks).sum() + 1) / (probs.sum() + masks.sum() + 1)
    return dice + F.binary_cross_entropy_with_logits(logits, masks)


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(2018)
    rng = np.random.default_rng(2018)
    data = (ReadNuclei if is_mended else Nuclei)(300, rng)
    net = UNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(1_000_000_000):
        chosen = rng.integers(0, len(data.images), 8)
        images = torch.from_numpy(data.images[chosen])[:, None]
        with diary.planted():
            masks = [data.mask(i) for i in chosen]  # planted
        loss = dice_bce(net(images), torch.from_numpy(np.stack(masks)).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
