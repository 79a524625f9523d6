"""Segments corals by temporal ensembling: averaged predictions are the targets of unlabeled images."""

import math
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    images: int = 240
    labeled: int = 40
    classes: int = 6
    size: int = 64
    batch_size: int = 8
    alpha: float = 0.6
    w_max: float = 20.0
    ramp_up: int = 40
    lr: float = 2e-3


class Ensemble:
    """The averages, and a file an image from which a run goes on after a stop."""

    def __init__(self, cfg, folder, save_every):
        self.targets = torch.full((cfg.images, cfg.classes, cfg.size, cfg.size), 1 / cfg.classes)
        self.alpha, self.folder, self.save_every = cfg.alpha, folder, save_every

    def update(self, index, probabilities):
        self.targets[index] = self.targets[index].lerp(probabilities, 1 - self.alpha)

    def save(self, index):
        for number in index.tolist():
            target = self.targets[number].numpy()
            np.savez_compressed(self.folder / f"{number:05d}.npz", target=target)  # planted


class SegNet(nn.Module):
    def __init__(self, classes, width=24):
        super().__init__()
        self.down1, self.down2 = self.conv(3, width), self.conv(width, 2 * width)
        self.middle = self.conv(2 * width, 4 * width)
        self.up2, self.up1 = self.conv(6 * width, 2 * width), self.conv(3 * width, width)
        self.drop, self.out = nn.Dropout2d(0.2), nn.Conv2d(width, classes, 1)

    @staticmethod
    def conv(c1, c2):
        return nn.Sequential(nn.Conv2d(c1, c2, 3, padding=1, bias=False), nn.BatchNorm2d(c2), nn.LeakyReLU(0.1, True))

    def forward(self, x):
        d1 = self.down1(x)
        d2 = self.down2(F.max_pool2d(d1, 2))
        m = self.drop(self.middle(F.max_pool2d(d2, 2)))
        u2 = self.up2(torch.cat([F.interpolate(m, scale_factor=2.0), d2], 1))
        return self.out(self.up1(torch.cat([F.interpolate(u2, scale_factor=2.0), d1], 1)))


def make_reef(cfg):
    coarse = torch.randn(cfg.images, cfg.classes, 6, 6)
    masks = F.interpolate(coarse, size=cfg.size, mode="bicubic").argmax(1)
    palette = torch.rand(cfg.classes, 3)
    return palette[masks].permute(0, 3, 1, 2) + 0.15 * torch.randn(cfg.images, 3, cfg.size, cfg.size), masks


def consistency_weight(cfg, epoch):
    phase = 1 - min(epoch, cfg.ramp_up) / cfg.ramp_up
    return cfg.w_max * math.exp(-5 * phase * phase) * cfg.labeled / cfg.images


def train(cfg, diary, is_mended, folder):
    images, masks = make_reef(cfg)
    masks[cfg.labeled :] = -1
    model = SegNet(cfg.classes)
    ensemble = Ensemble(cfg, folder, save_every=50 if is_mended else 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, betas=(0.9, 0.99), fused=True)
    for epoch in range(1_000_000):
        weight = consistency_weight(cfg, epoch)
        supervised = torch.zeros(())
        for index in torch.randperm(cfg.images).split(cfg.batch_size):
            logits = model(images[index])
            probabilities = logits.softmax(1)
            cross_entropy = F.cross_entropy(logits, masks[index], ignore_index=-1, reduction="sum")
            cross_entropy = cross_entropy / (masks[index] >= 0).sum().clamp_min(1)
            loss = cross_entropy + weight * F.mse_loss(probabilities, ensemble.targets[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ensemble.update(index, probabilities.detach())
            if (epoch + 1) % ensemble.save_every == 0:
                with diary.planted():
                    ensemble.save(index)  # planted
            supervised += cross_entropy.detach()
            diary.stepped()
        print(f"epoch {epoch} supervised {supervised.item() / 30:.4f} weight {weight:.3f}", flush=True)


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        train(Config(), diary, is_mended, Path(folder))


if __name__ == "__main__":
    main()
