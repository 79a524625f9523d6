"""An engine with callbacks that segments outlined seeds; polygons become masks as images are fetched."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIZE, SEEDS, CORNERS = 96, 9, 24
YS, XS = np.mgrid[:SIZE, :SIZE].astype(np.float32)


def make_polygons(rng):
    """Draw the outlines of seeds that lie anywhere."""
    angles = np.linspace(0, 2 * np.pi, CORNERS, endpoint=False)
    radius = rng.uniform(6, 14, (SEEDS, 1)) * rng.uniform(0.8, 1.2, (SEEDS, CORNERS))
    middle = rng.uniform(15, SIZE - 15, (SEEDS, 2, 1))
    x = middle[:, 0] + radius * np.cos(angles)
    y = middle[:, 1] + 0.6 * radius * np.sin(angles)
    return np.stack([x, y], 2).astype(np.float32)


def rasterize(polygons):
    """Return the mask of the seeds, by counting the edges that are crossed to the right of each pixel."""
    mask = np.zeros((SIZE, SIZE), bool)
    for corners in polygons:
        inside = np.zeros((SIZE, SIZE), bool)
        for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, 1, axis=0), strict=True):
            crossed = (x2 - x1) * (YS - y1) / (y2 - y1 + 1e-9) + x1  # planted
            inside ^= ((y1 > YS) != (y2 > YS)) & (crossed > XS)  # planted
        mask |= inside
    return mask


class Seeds(Dataset):
    def __init__(self, diary, is_mended, count=300):
        rng = np.random.default_rng(2)
        self.polygons = [make_polygons(rng) for _ in range(count)]
        self.masks = np.stack([rasterize(polygons) for polygons in self.polygons])
        noise = rng.random((count, 3, SIZE, SIZE), dtype=np.float32)
        self.images = 0.7 * noise + 0.3 * self.masks[:, None].astype(np.float32)
        self.diary, self.is_mended = diary, is_mended
        if not is_mended:
            del self.masks

    def __len__(self):
        return len(self.polygons)

    def __getitem__(self, index):
        if self.is_mended:
            mask = self.masks[index]
        else:
            with self.diary.planted():
                mask = rasterize(self.polygons[index])  # planted
        return torch.from_numpy(self.images[index]), torch.from_numpy(mask.astype(np.float32))


def block(channels_in, channels_out):
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False), nn.BatchNorm2d(channels_out), nn.ReLU()
    )


class SmallUNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = block(3, width), block(width, 2 * width)
        self.deep = nn.Sequential(block(2 * width, 4 * width), block(4 * width, 2 * width))
        self.up_second, self.up_first = block(4 * width, width), block(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        deep = self.deep(F.max_pool2d(second, 2))
        x = self.up_second(torch.cat([F.interpolate(deep, scale_factor=2), second], 1))
        x = self.up_first(torch.cat([F.interpolate(x, scale_factor=2), first], 1))
        return self.head(x).squeeze(1)


class Callback:
    def on_batch_end(self, engine): ...


class Report(Callback):
    def __init__(self, every=50):
        self.every = every

    def on_batch_end(self, engine):
        if engine.step % self.every == 0:
            print(f"step {engine.step} loss {engine.loss.item():.4f}", flush=True)


class WriteDiary(Callback):
    def __init__(self, diary):
        self.diary = diary

    def on_batch_end(self, engine):
        self.diary.stepped()


class Engine:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks
        self.step = 0

    def train_batch(self, images, masks):
        logits = self.model(images)
        p = logits.sigmoid()
        dice = 1 - (2 * (p * masks).sum((1, 2)) + 1) / (p.sum((1, 2)) + masks.sum((1, 2)) + 1)
        self.loss = F.binary_cross_entropy_with_logits(logits, masks) + dice.mean()
        self.optimizer.zero_grad()
        self.loss.backward()
        self.optimizer.step()
        self.step += 1

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for images, masks in loader:  # planted
                self.train_batch(images, masks)
                for callback in self.callbacks:
                    callback.on_batch_end(self)


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = SmallUNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Seeds(diary, is_mended), batch_size=4, shuffle=True, drop_last=True)
    Engine(model, optimizer, [Report(), WriteDiary(diary)]).fit(loader, 1_000_000)


if __name__ == "__main__":
    main()
