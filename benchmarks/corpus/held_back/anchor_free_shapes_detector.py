"""Detection of shapes without anchors, after CenterNet: a map of centers with a focal loss, and sizes beside it.

Nothing is planted: the maps of the targets are drawn once for each image, and boxes are decoded every 100 steps only.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.ops import nms

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, STRIDE, CLASSES = 64, 4, 3
GRID = SIDE // STRIDE


class Shapes(Dataset):
    """Rectangles in three colors; images and maps are made at the start."""

    def __init__(self, count):
        self.images = 0.1 * torch.randn(count, 3, SIDE, SIDE)
        self.heat = torch.zeros(count, CLASSES, GRID, GRID)
        self.size, self.mask = torch.zeros(count, 2, GRID, GRID), torch.zeros(count, 1, GRID, GRID)
        axis = torch.arange(GRID)
        for number in range(count):
            for _ in range(3):
                kind = int(torch.randint(CLASSES, ()))
                cy, cx, h, w = (torch.rand(4) * torch.tensor([44, 44, 12, 12]) + torch.tensor([10, 10, 6, 6])).tolist()
                top, left = int(cy - h / 2), int(cx - w / 2)
                self.images[number, kind, top : top + int(h), left : left + int(w)] += 1
                y, x = int(cy / STRIDE), int(cx / STRIDE)
                spread = torch.exp(-((axis[:, None] - y) ** 2 + (axis - x) ** 2) / 2.0)
                self.heat[number, kind] = torch.maximum(self.heat[number, kind], spread)
                self.size[number, :, y, x] = torch.tensor([h, w]) / SIDE
                self.mask[number, 0, y, x] = 1

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.heat[index], self.size[index], self.mask[index]


def conv(n_in, n_out, stride=1):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.LeakyReLU(0.1, inplace=True)
    )


class CenterNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.low = nn.Sequential(conv(3, width, 2), conv(width, 2 * width, 2), conv(2 * width, 2 * width))
        self.deep = nn.Sequential(conv(2 * width, 4 * width, 2), conv(4 * width, 4 * width))
        self.lateral = nn.Conv2d(4 * width, 2 * width, 1)
        self.heat = nn.Sequential(conv(2 * width, 2 * width), nn.Conv2d(2 * width, CLASSES, 1))
        self.size = nn.Sequential(conv(2 * width, width), nn.Conv2d(width, 2, 1))
        nn.init.constant_(self.heat[-1].bias, -2.2)

    def forward(self, images):
        low = self.low(images)
        merged = low + F.interpolate(self.lateral(self.deep(low)), scale_factor=2)
        return self.heat(merged), self.size(merged)


def focal_loss(logits, heat, alpha=2, beta=4):
    """Loss of the penalty-reduced kind: near a center a wrong answer costs less."""
    is_center = heat.eq(1).float()
    prob = logits.sigmoid()
    hit = F.logsigmoid(logits) * (1 - prob) ** alpha * is_center
    miss = F.logsigmoid(-logits) * prob**alpha * (1 - heat) ** beta * (1 - is_center)
    return -(hit + miss).sum() / is_center.sum().clamp(min=1)


@torch.inference_mode()
def decode(logits, sizes, threshold=0.3):
    """Return the boxes of one image."""
    _, y, x = torch.where(logits.sigmoid() > threshold)
    scores = logits.sigmoid()[logits.sigmoid() > threshold]
    center = torch.stack([x, y], 1) * STRIDE + STRIDE / 2
    half = sizes[:, y, x].T.flip(1) * SIDE / 2
    boxes = torch.cat([center - half, center + half], 1)
    return boxes[nms(boxes, scores, 0.5)]


class Detector:
    def __init__(self, diary):
        self.diary, self.net = diary, CenterNet()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.999)

    def fit(self, loader):
        step = 0
        while True:
            for images, heat, size, mask in loader:
                logits, sizes = self.net(images)
                loss = focal_loss(logits, heat) + 5 * (F.l1_loss(sizes, size, reduction="none") * mask).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                step += 1
                self.diary.stepped()
                if step % 100 == 0:
                    found = decode(logits[0], sizes[0])
                    print(f"step {step} loss {loss.item():.3f} boxes {len(found)}", flush=True)
            self.scheduler.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(40)
    kept_diary, _ = begin()
    Detector(kept_diary).fit(DataLoader(Shapes(640), 10, shuffle=True, drop_last=True))
