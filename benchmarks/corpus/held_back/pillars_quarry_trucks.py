"""A detector on lidar scans of a quarry, in OpenPCDet's way: pillars of points become an image from above."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

GRID, CELL, RANGE = 64, 0.8, 51.2
MAX_PILLARS, MAX_POINTS = 1500, 12


class QuarryScans:
    """Scans with trucks as denser boxes of points on rough ground."""

    def __init__(self, number=96, points=4500):
        rng = np.random.default_rng(1)
        self.scans, self.centers = [], []
        for _ in range(number):
            ground = rng.uniform(0, RANGE, (points, 2))
            height = 0.3 * rng.standard_normal((points, 1))
            cloud = np.concatenate([ground, height, rng.uniform(0, 1, (points, 1))], 1)
            centers = rng.uniform(4, RANGE - 4, (6, 2))
            for i, center in enumerate(centers):
                cloud[i * 150 : i * 150 + 150, :2] = center + rng.uniform(-2, 2, (150, 2))
                cloud[i * 150 : i * 150 + 150, 2] += 1.5
            self.scans.append(rng.permutation(cloud.astype(np.float32)))
            self.centers.append(centers)

    def batches(self, size):
        order = np.random.default_rng().permutation(len(self.scans))
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            yield [self.scans[i] for i in chosen], [self.centers[i] for i in chosen]


class PointsToPillars:
    """The voxel generator: keeps the first points of each pillar."""

    def generate(self, points):
        pillars = np.zeros((MAX_PILLARS, MAX_POINTS, 4), np.float32)
        coordinates = np.zeros((MAX_PILLARS, 2), np.int64)
        counts = np.zeros(MAX_PILLARS, np.int64)
        known: dict[tuple[int, int], int] = {}
        for point in points:  # planted
            place = int(point[1] / CELL), int(point[0] / CELL)  # planted
            number = known.get(place)
            if number is None:
                if len(known) == MAX_PILLARS:
                    continue
                number = known[place] = len(known)
                coordinates[number] = place  # planted
            if counts[number] < MAX_POINTS:
                pillars[number, counts[number]] = point  # planted
                counts[number] += 1  # planted
        return pillars, coordinates, counts


class SortedPointsToPillars:
    """The same with one sort."""

    def generate(self, points):
        cell = (points[:, :2] / CELL).astype(np.int64)
        flat = cell[:, 1] * GRID + cell[:, 0]
        order = np.argsort(flat, kind="stable")
        places, starts, counts = np.unique(flat[order], return_index=True, return_counts=True)
        rank = np.arange(len(flat)) - np.repeat(starts, counts)
        pillar = np.repeat(np.arange(len(places)), counts)
        kept = (rank < MAX_POINTS) & (pillar < MAX_PILLARS)
        pillars = np.zeros((MAX_PILLARS, MAX_POINTS, 4), np.float32)
        pillars[pillar[kept], rank[kept]] = points[order[kept]]
        coordinates, filled = np.zeros((MAX_PILLARS, 2), np.int64), np.zeros(MAX_PILLARS, np.int64)
        number = min(len(places), MAX_PILLARS)
        coordinates[:number] = np.stack([places // GRID, places % GRID], 1)[:number]
        filled[:number] = counts[:number].clip(max=MAX_POINTS)
        return pillars, coordinates, filled


class PointPillar(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.pfn = nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.ReLU(inplace=True))
        layers = []
        for c1, c2, stride in ((width, 32, 2), (32, 64, 1), (64, 96, 1)):
            layers += [nn.Conv2d(c1, c2, 3, stride, 1, bias=False), nn.BatchNorm2d(c2), nn.ReLU(inplace=True)]
        self.backbone, self.head = nn.Sequential(*layers), nn.Conv2d(96, 1, 1)
        nn.init.constant_(self.head.bias, -3.0)

    def forward(self, pillars, coordinates, counts):
        filled = torch.arange(MAX_POINTS) < counts[..., None]
        features = (self.pfn(pillars) * filled[..., None]).amax(2)
        flat = (coordinates[..., 0] * GRID + coordinates[..., 1])[..., None].expand_as(features)
        image = features.new_zeros(len(pillars), GRID * GRID, features.shape[-1]).scatter_add(1, flat, features)
        return self.head(self.backbone(image.transpose(1, 2).unflatten(2, (GRID, GRID))))


def heatmaps(centers):
    axis = (np.arange(GRID // 2) + 0.5) * 2 * CELL
    spots = np.asarray(centers)
    dx, dy = axis[None, None] - spots[..., :1], axis[None, None] - spots[..., 1:]
    return torch.from_numpy(np.exp(-(dy[..., :, None] ** 2 + dx[..., None, :] ** 2) / 8).max(1)).float()[:, None]


def collate(scans, generator):
    made = [generator.generate(scan) for scan in scans]  # planted
    return [torch.from_numpy(np.stack(part)) for part in zip(*made, strict=True)]


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    scans, model = QuarryScans(), PointPillar()
    generator = SortedPointsToPillars() if is_mended else PointsToPillars()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    step = 0
    while True:
        for clouds, centers in scans.batches(4):
            with diary.planted():
                pillars, coordinates, counts = collate(clouds, generator)  # planted
            loss = F.binary_cross_entropy_with_logits(model(pillars, coordinates, counts), heatmaps(centers))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            diary.stepped()
            step += 1
            if step % 100 == 0:
                print(f"iter {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
