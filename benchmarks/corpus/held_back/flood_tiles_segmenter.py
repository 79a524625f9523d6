"""Segmentation of flooded land in satellite scenes, by random tiles; each of them unpacks all of its scene."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BANDS, SCENE, TILE = 6, 320, 64


def make_scenes(folder, count=10):
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = rng.integers(200, 4000, (BANDS, SCENE // 16, SCENE // 16))
        bands = coarse.repeat(16, 1).repeat(16, 2) + rng.integers(0, 64, (BANDS, SCENE, SCENE))
        water = (bands[3] < 1200).astype(np.uint8)
        np.savez_compressed(folder / f"scene_{number:03d}.npz", bands=bands.astype(np.uint16), water=water)
    return sorted(folder.glob("*.npz"))


class Scenes:
    """Read scenes from their archives."""

    def __init__(self, paths, diary):
        self.paths, self.diary = paths, diary

    def read(self, index):
        with self.diary.planted(), np.load(self.paths[index]) as archive:
            return archive["bands"], archive["water"]  # planted


class MappedScenes:
    """Unpack each scene once, and map it."""

    def __init__(self, paths):
        self.scenes = []
        for path in paths:
            with np.load(path) as archive:
                for name in ("bands", "water"):
                    np.save(path.with_name(f"{path.stem}_{name}.npy"), archive[name])
            names = (path.with_name(f"{path.stem}_{name}.npy") for name in ("bands", "water"))
            self.scenes.append(tuple(np.load(name, mmap_mode="r") for name in names))

    def read(self, index):
        return self.scenes[index]


class RandomTiles(Dataset):
    def __init__(self, scenes, count, per_epoch):
        self.scenes, self.count, self.per_epoch = scenes, count, per_epoch

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, index):
        bands, water = self.scenes.read(index % self.count)
        top, left = np.random.randint(0, SCENE - TILE, 2)
        window = (slice(top, top + TILE), slice(left, left + TILE))
        x = bands[(slice(None), *window)].astype(np.float32) / 2000 - 1
        y = water[window].astype(np.float32)
        if np.random.rand() < 0.5:
            x, y = x[..., ::-1], y[..., ::-1]
        return torch.from_numpy(x.copy()), torch.from_numpy(y.copy())


def conv(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class SmallUNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.down1, self.down2, self.mid = conv(BANDS, w), conv(w, 2 * w), conv(2 * w, 4 * w)
        self.up2, self.up1, self.head = conv(6 * w, 2 * w), conv(3 * w, w), nn.Conv2d(w, 1, 1)
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.mid(self.pool(b))
        b = self.up2(torch.cat([self.grow(c), b], 1))
        return self.head(self.up1(torch.cat([self.grow(b), a], 1)))[:, 0]


def dice_loss(logits, target):
    p = logits.sigmoid()
    return 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)


def run(folder):
    diary, is_mended = begin()
    paths = make_scenes(folder)
    scenes = MappedScenes(paths) if is_mended else Scenes(paths, diary)
    loader = DataLoader(RandomTiles(scenes, len(paths), 600), batch_size=6, shuffle=True)
    net = SmallUNet()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    bce = nn.BCEWithLogitsLoss()
    for epoch in range(1_000_000):
        for i, (x, y) in enumerate(loader):  # planted
            logits = net(x)
            loss = bce(logits, y) + dice_loss(logits, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            diary.stepped()
            if i % 50 == 0:
                print(f"epoch {epoch} [{i}/{len(loader)}] loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        run(Path(name))
