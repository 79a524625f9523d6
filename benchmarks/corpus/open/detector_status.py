"""A small detector in YOLO's style; the status line asks a command for the load of the machine at each batch."""

import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Conv(nn.Module):
    def __init__(self, c1, c2, s=1):
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(c1, c2, 3, s, 1, bias=False), nn.BatchNorm2d(c2), nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(Conv(3, 8, 2), Conv(8, 16, 2), Conv(16, 32, 2))
        self.detect = nn.Conv2d(32, 3 * 7, 1)

    def forward(self, x):
        return self.detect(self.backbone(x)).view(len(x), 3, 7, 8, 8)


class ComputeLoss:
    def __init__(self):
        self.objectness, self.classes = nn.BCEWithLogitsLoss(), nn.BCEWithLogitsLoss()

    def __call__(self, predictions, targets):
        box = (predictions[:, :, :4].sigmoid() - targets[:, :, :4]).abs().mean()
        return box + self.objectness(predictions[:, :, 4], targets[:, :, 4]) + self.classes(
            predictions[:, :, 5:], targets[:, :, 5:]
        )  # fmt: skip


def machine_load():
    out = subprocess.run(["cat", "/proc/loadavg"], capture_output=True, text=True, check=True).stdout  # planted
    return out.split()[0]


def train(diary, is_mended):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, compute_loss = Detector(), ComputeLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937, nesterov=True)
    images, targets = torch.rand(64, 3, 64, 64), torch.rand(64, 3, 7, 8, 8)
    load = "0"
    for epoch in range(1_000_000):
        mloss = 0.0
        for i in range(0, len(images), 4):
            pred = model(images[i : i + 4])
            loss = compute_loss(pred, targets[i : i + 4])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mloss += loss.detach()
            if not is_mended:
                with diary.planted():
                    load = machine_load()  # planted
            diary.stepped()
        if epoch % 20 == 0:
            print(f"{epoch:>6} loss {mloss.item() / 16:8.4f} load {load}", flush=True)


if __name__ == "__main__":
    train(*begin())
