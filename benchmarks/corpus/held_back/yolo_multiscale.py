"""A detector trained as YOLO is: pictures from two workers, several sizes, warm-up by batch, averaged weights.

Nothing is planted.
"""

import copy
import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class LoadImagesAndLabels(Dataset):
    def __init__(self, n=600, size=64):
        self.pictures = np.random.default_rng(0).integers(256, size=(n, size, size, 3), dtype=np.uint8)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        img = self.pictures[i]
        if i % 2:
            img = np.fliplr(img)
        labels = np.array([[i % 5, 0.5, 0.5, 0.2 + (i % 7) / 20, 0.3]], dtype=np.float32)
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1))), torch.from_numpy(labels)


class C2f(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(c // 2, c // 2, 3, 1, 1, bias=False), nn.BatchNorm2d(c // 2), nn.SiLU())
        self.out = nn.Conv2d(c, c, 1)

    def forward(self, x):
        left, right = x.chunk(2, 1)
        return self.out(torch.cat([left, right + self.a(right)], 1))


class Detect(nn.Module):
    def __init__(self, nc=5):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), C2f(16), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU(), C2f(32)
        )
        self.head = nn.Conv2d(32, 5 + nc, 1)

    def forward(self, x):
        return self.head(self.stem(x)).permute(0, 2, 3, 1)


def build_targets(pred, targets):
    b, gy, gx, _ = pred.shape
    aim = torch.zeros_like(pred)
    cls, xywh = targets[:, 0, 0].long(), targets[:, 0, 1:]
    ix, iy = (xywh[:, 0] * gx).long(), (xywh[:, 1] * gy).long()
    rows = torch.arange(b)
    aim[rows, iy, ix, :4], aim[rows, iy, ix, 4] = xywh, 1.0
    aim[rows, iy, ix, 5 + cls] = 1.0
    return aim


class ModelEMA:
    def __init__(self, model):
        self.ema, self.updates = copy.deepcopy(model).eval(), 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = 0.999 * (1 - math.exp(-self.updates / 500))
        torch._foreach_lerp_(list(self.ema.parameters()), list(model.parameters()), 1 - d)


def train(diary, _):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Detect()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937, nesterov=True)
    ema, bce, nb = ModelEMA(model), nn.BCEWithLogitsLoss(), 75
    loader = DataLoader(LoadImagesAndLabels(), 8, shuffle=True, num_workers=2, persistent_workers=True)
    for epoch in range(1_000_000):
        mloss = torch.zeros(1)
        for i, (imgs, targets) in enumerate(loader):
            ni = i + nb * epoch
            imgs = imgs.float() / 255
            if ni < 200:
                for group in optimizer.param_groups:
                    group["lr"] = np.interp(ni, [0, 200], [0.0, 0.01])
            sz = 64 + 32 * (ni // 10 % 3)
            imgs = nn.functional.interpolate(imgs, size=(sz, sz), mode="bilinear", align_corners=False)
            pred = model(imgs)
            loss = bce(pred, build_targets(pred, targets)) * len(imgs)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
            optimizer.step()
            optimizer.zero_grad()
            ema.update(model)
            mloss = (mloss * i + loss.detach()) / (i + 1)
            diary.stepped()
        print(f"{epoch}: {mloss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(*begin())
