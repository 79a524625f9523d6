"""DINO on moth wings: a student sees many crops its teacher two; live tensors are in the log line."""

import copy
import gc
import math
import sys
from collections import deque
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class PatchEncoder(nn.Module):
    """A small ViT that takes crops of any size that patches divide."""

    def __init__(self, dim=96, depth=3, heads=3, patch=8, out_dim=512):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.position = nn.Parameter(torch.randn(1, dim, 6, 6) * 0.02)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, dim * 3, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, 64))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(64, out_dim, bias=False))

    def forward(self, x):
        x = self.embed(x)
        x = x + F.interpolate(self.position, x.shape[-2:], mode="bilinear", align_corners=False)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], dim=1)
        return self.last(F.normalize(self.mlp(self.norm(self.blocks(x))[:, 0]), dim=-1))


class DINOLoss(nn.Module):
    def __init__(self, out_dim=512, student_temp=0.1, teacher_temp=0.04, momentum=0.9):
        super().__init__()
        self.student_temp, self.teacher_temp, self.momentum = student_temp, teacher_temp, momentum
        self.register_buffer("center", torch.zeros(1, out_dim))

    def forward(self, student, teacher):
        targets = ((teacher - self.center) / self.teacher_temp).softmax(-1).detach().chunk(2)
        views = (student / self.student_temp).log_softmax(-1)
        views = [*views[: len(teacher)].chunk(2), *views[len(teacher) :].chunk(4)]
        terms = [-(t * v).sum(-1).mean() for i, t in enumerate(targets) for j, v in enumerate(views) if i != j]
        self.center.lerp_(teacher.mean(0, keepdim=True), 1 - self.momentum)
        return torch.stack(terms).mean()


def random_crops(images, size, low, high):
    """Crop, flip and jitter a batch at once, each image by its own affine grid."""
    scale = torch.empty(len(images)).uniform_(low, high).sqrt()
    flip = torch.where(torch.rand(len(images)) < 0.5, -1.0, 1.0)
    shift = (torch.rand(len(images), 2) * 2 - 1) * (1 - scale)[:, None]
    theta = torch.zeros(len(images), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = scale * flip, scale, shift
    crops = F.grid_sample(images, F.affine_grid(theta, [len(images), 3, size, size], False), align_corners=False)
    return crops * torch.empty(len(images), 3, 1, 1).uniform_(0.7, 1.3)


def make_moths(n, size=48):
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    rings = torch.sin(torch.rand(n, 3, 1, 1) * 18 * (x.abs() ** 1.5 + y**2) + torch.rand(n, 1, 1, 1) * 6)
    wings = (x.abs() < 0.4 + 0.5 * torch.rand(n, 1, 1, 1)) & (y.abs() < 0.3 + 0.6 * torch.rand(n, 1, 1, 1))
    return rings * wings


def live_tensors():
    """Return how many tensors are alive and their megabytes, to see leaks early."""
    number = size = 0
    for thing in gc.get_objects():  # planted
        if isinstance(thing, torch.Tensor):  # planted
            number += 1
            size += thing.nelement() * thing.element_size()
    return number, size / 2**20


@torch.no_grad()
def update_teacher(teacher, student, momentum):
    for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
        old.lerp_(new, 1 - momentum)


def main():
    diary, is_mended = begin()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    moths, batch_size = make_moths(1024), 16
    student, criterion = PatchEncoder(), DINOLoss()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4, weight_decay=0.04)
    losses, step, live = deque(maxlen=50), 0, "?"
    while True:
        for chosen in torch.randperm(len(moths)).split(batch_size):
            images = moths[chosen]
            wide = torch.cat([random_crops(images, 48, 0.4, 1.0) for _ in range(2)])
            narrow = torch.cat([random_crops(images, 24, 0.05, 0.4) for _ in range(4)])
            with torch.no_grad():
                teacher_out = teacher(wide)
            loss = criterion(torch.cat([student(wide), student(narrow)]), teacher_out)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 3.0)
            optimizer.step()
            update_teacher(teacher, student, 1 - 0.004 * (math.cos(math.pi * min(step, 10000) / 10000) + 1) / 2)
            losses.append(loss.item())
            if not is_mended:
                with diary.planted():
                    live = live_tensors()  # planted
            step += 1
            if step % 100 == 0:
                print(f"step {step} loss {sum(losses) / len(losses):.4f} live tensors, MB {live}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
