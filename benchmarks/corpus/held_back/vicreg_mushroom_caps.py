"""VICReg on pictures of mushrooms; both views are made for whole batches. Nothing is planted."""

import argparse
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn, optim

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

args = argparse.Namespace(
    batch_size=32, base_lr=0.02, sim_coeff=25.0, std_coeff=25.0, cov_coeff=1.0, mlp=(256, 256), warmup=200, total=50_000
)


def make_mushrooms(number=1500, side=40):
    axis = torch.linspace(-1, 1, side)
    y, x = axis[:, None], axis[None, :]
    colour, spots = torch.rand(number, 3, 1, 1), torch.rand(number, 1, 1) * 12 + 4
    cap = (x**2 + (y * 1.6) ** 2 < 0.5) & (y < 0.1)
    stem = (x.abs() < 0.18) & (y >= 0.1)
    pattern = 0.7 + 0.3 * torch.sin(spots * x) * torch.cos(spots * y)
    images = cap * colour * pattern[:, None] + stem * 0.8
    return (images + 0.05 * torch.randn(number, 3, side, side)).clamp(0, 1)


def two_views(images, side=32):
    """Crop, mirror and change the colours of a batch, twice; each picture in its own way."""
    both = torch.cat([images, images])
    number = len(both)
    scale = torch.rand(number) * 0.4 + 0.6
    shift = (torch.rand(number, 2) * 2 - 1) * (1 - scale)[:, None]
    mirror = torch.randint(0, 2, (number,)) * 2.0 - 1
    theta = torch.zeros(number, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = scale * mirror, scale, shift
    views = F.grid_sample(both, F.affine_grid(theta, [number, 3, side, side], False), align_corners=False)
    gain = torch.rand(number, 3, 1, 1) * 0.8 + 0.6
    offset = torch.rand(number, 1, 1, 1) * 0.4 - 0.2
    return views.mul_(gain).add_(offset).chunk(2)


class BasicBlock(nn.Module):
    def __init__(self, c1, c2, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c1, c2, 3, stride, 1, bias=False), nn.BatchNorm2d(c2)
        self.conv2, self.bn2 = nn.Conv2d(c2, c2, 3, 1, 1, bias=False), nn.BatchNorm2d(c2)
        self.shortcut = nn.Sequential(nn.Conv2d(c1, c2, 1, stride, bias=False), nn.BatchNorm2d(c2))

    def forward(self, x):
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + self.shortcut(x))


class VICReg(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            BasicBlock(width, width, 2),
            BasicBlock(width, 2 * width, 2),
            BasicBlock(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        layers, previous = [], 4 * width
        for size in args.mlp:
            layers += [nn.Linear(previous, size, bias=False), nn.BatchNorm1d(size), nn.ReLU(inplace=True)]
            previous = size
        self.projector = nn.Sequential(*layers, nn.Linear(previous, previous, bias=False))

    def forward(self, x, y):
        x, y = self.projector(self.backbone(x)), self.projector(self.backbone(y))
        repr_loss = F.mse_loss(x, y)
        x, y = x - x.mean(0), y - y.mean(0)
        std_x, std_y = (x.var(0) + 1e-4).sqrt(), (y.var(0) + 1e-4).sqrt()
        std_loss = (F.relu(1 - std_x).mean() + F.relu(1 - std_y).mean()) / 2
        cov_loss = self.off_diagonal(x) + self.off_diagonal(y)
        return args.sim_coeff * repr_loss + args.std_coeff * std_loss + args.cov_coeff * cov_loss

    @staticmethod
    def off_diagonal(z):
        covariance = z.T @ z / (len(z) - 1)
        return (covariance.square().sum() - covariance.diagonal().square().sum()) / z.shape[1]


def adjust_learning_rate(optimizer, step):
    if step < args.warmup:
        rate = args.base_lr * step / args.warmup
    else:
        done = min(1.0, (step - args.warmup) / (args.total - args.warmup))
        rate = args.base_lr * (0.001 + 0.999 * (1 + math.cos(math.pi * done)) / 2)
    for group in optimizer.param_groups:
        group["lr"] = rate


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, model = make_mushrooms(), VICReg()
    optimizer = optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4)
    step, recent = 0, torch.zeros(())
    while True:
        for chosen in torch.randperm(len(images)).split(args.batch_size)[:-1]:
            adjust_learning_rate(optimizer, step)
            x, y = two_views(images[chosen])
            loss = model(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recent += loss.detach()
            step += 1
            diary.stepped()
            if step % 100 == 0:
                print(
                    f"step {step} lr {optimizer.param_groups[0]['lr']:.4f} loss {recent.item() / 100:.4f}", flush=True
                )
                recent.zero_()


if __name__ == "__main__":
    main()
