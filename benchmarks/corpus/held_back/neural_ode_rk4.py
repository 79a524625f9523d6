"""A neural ODE that classifies pictures: an own solver of fourth order walks through the depth of the network.

Nothing is planted: the many small calls of the solver are the model itself.
"""

import itertools
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CLASSES, IMAGE, BATCH = 8, 24, 16


class ConcatConv2d(nn.Module):
    """A convolution that sees the time as one more channel."""

    def __init__(self, before, after, stride=1):
        super().__init__()
        self.layer = nn.Conv2d(before + 1, after, 3, stride, padding=1)

    def forward(self, t, x):
        time = torch.full_like(x[:, :1], t)
        return self.layer(torch.cat([time, x], 1))


class ODEFunc(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.conv1, self.conv2 = ConcatConv2d(width, width), ConcatConv2d(width, width)
        self.evaluations = 0

    def forward(self, t, x):
        self.evaluations += 1
        x = self.conv1(t, F.relu(self.norm1(x)))
        return self.conv2(t, F.relu(self.norm2(x)))


def rk4_step(func, t, dt, y):
    """Go one step by the rule of three eighths."""
    k1 = func(t, y)
    k2 = func(t + dt / 3, y + dt * k1 / 3)
    k3 = func(t + dt * 2 / 3, y + dt * (k2 - k1 / 3))
    k4 = func(t + dt, y + dt * (k1 - k2 + k3))
    return y + dt * (k1 + 3 * (k2 + k3) + k4) / 8


def odeint(func, y, times):
    """Return the states at ``times``, the first of which is that of ``y``."""
    states = [y]
    for begun, ended in itertools.pairwise(times):
        states.append(rk4_step(func, begun, ended - begun, states[-1]))
    return states


class ODEBlock(nn.Module):
    def __init__(self, func, steps):
        super().__init__()
        self.func, self.times = func, [step / steps for step in range(steps + 1)]

    def forward(self, x):
        return odeint(self.func, x, self.times)[-1]


class ODENet(nn.Module):
    def __init__(self, width=32, steps=4):
        super().__init__()
        self.downsample = nn.Sequential(
            nn.Conv2d(1, width, 3, 1, padding=1),
            nn.GroupNorm(8, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 4, 2, padding=1),
        )
        self.block = ODEBlock(ODEFunc(width), steps)
        self.head = nn.Sequential(nn.GroupNorm(8, width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.out(self.head(self.block(self.downsample(x))))


class RunningAverageMeter:
    def __init__(self, momentum=0.98):
        self.momentum, self.avg = momentum, None

    def update(self, value):
        self.avg = value if self.avg is None else self.momentum * self.avg + (1 - self.momentum) * value


def rings(count):
    """Rings and spokes of different numbers."""
    labels = torch.randint(CLASSES, (count,))
    y, x = torch.meshgrid(torch.linspace(-1, 1, IMAGE), torch.linspace(-1, 1, IMAGE), indexing="ij")
    radius, angle = (x**2 + y**2).sqrt(), torch.atan2(y, x)
    kind = labels.view(-1, 1, 1)
    waves = torch.where(kind % 2 == 0, torch.sin((4 + kind) * 2 * radius), torch.sin((2 + kind // 2) * angle))
    return waves[:, None] + 0.5 * torch.randn(count, 1, IMAGE, IMAGE), labels


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum() for x, y in zip(images.split(50), labels.split(50), strict=True))
    model.train()
    return right.item() / len(labels)


def main(diary, _):
    model, meter = ODENet(), RunningAverageMeter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = rings(2000)
    held_out = rings(100)
    for itr in range(10**9):
        rows = torch.randint(len(labels), (BATCH,))
        model.block.func.evaluations = 0
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        evaluations = model.block.func.evaluations
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss.detach())
        diary.stepped()
        if itr % 500 == 0:
            print(
                f"Iter {itr:05d} | loss {meter.avg.item():.3f} | NFE-F {evaluations} | {accuracy(model, *held_out):.3f}"
            )


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
