"""SimSiam on pictures of seeds with Accelerate; the effective rank of its embeddings tells whether they collapse."""

import sys
from collections import deque
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BANK, DIM = 4096, 256


def make_seeds(count, size=32):
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    angle, long, short = (
        torch.rand(count, 1, 1) * 3.14,
        0.4 + 0.5 * torch.rand(count, 1, 1),
        0.2 + 0.2 * torch.rand(count, 1, 1),
    )
    u, v = xs * angle.cos() + ys * angle.sin(), ys * angle.cos() - xs * angle.sin()
    husk = ((u / long) ** 2 + (v / short) ** 2 < 1).float()[:, None]
    return husk * (0.3 + 0.7 * torch.rand(count, 3, 1, 1)) + 0.05 * torch.randn(count, 3, size, size)


class Views:
    """Batches of two views, made for a whole batch at a time."""

    def __init__(self, images, batch):
        self.images, self.batch = images, batch

    def view(self, images):
        top, left = torch.randint(0, 6, (2,)).tolist()
        images = images[:, :, top : top + 27, left : left + 27]
        if torch.rand(()) < 0.5:
            images = images.flip(3)
        gain = 0.7 + 0.6 * torch.rand(len(images), 3, 1, 1)
        return images * gain + 0.2 * torch.rand(len(images), 1, 1, 1)

    def __iter__(self):
        for rows in torch.randperm(len(self.images)).split(self.batch):
            images = self.images[rows]
            yield self.view(images), self.view(images)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.short(x))


class SimSiam(nn.Module):
    def __init__(self, width=16, dim=DIM):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1),
            Residual(width, width, 1),
            Residual(width, 2 * width, 2),
            Residual(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(nn.Linear(4 * width, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim))
        self.predictor = nn.Sequential(nn.Linear(dim, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, dim))

    def forward(self, one, other):
        z1, z2 = self.projector(self.encoder(one)), self.projector(self.encoder(other))
        p1, p2 = self.predictor(z1), self.predictor(z2)
        loss = -(F.cosine_similarity(p1, z2.detach()).mean() + F.cosine_similarity(p2, z1.detach()).mean()) / 2
        return loss, z1.detach()


class CollapseMonitor:
    """Keeps the latest embeddings, and tells their effective rank."""

    def __init__(self, size, dim):
        self.bank, self.next, self.ranks = torch.randn(size, dim), 0, deque(maxlen=100)

    def add(self, embeddings):
        self.bank[self.next : self.next + len(embeddings)] = embeddings
        self.next = (self.next + len(embeddings)) % len(self.bank)

    def effective_rank(self):
        values = torch.linalg.svdvals(F.normalize(self.bank, dim=1))  # planted
        chances = values / values.sum() + 1e-7
        return (-(chances * chances.log()).sum()).exp()


def main():
    diary, is_mended = begin()
    accelerator = Accelerator(cpu=True)
    model = SimSiam()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    loader, monitor, step = Views(make_seeds(2048), 32), CollapseMonitor(BANK, DIM), 0
    while True:
        for one, other in loader:
            loss, embeddings = model(one, other)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            monitor.add(embeddings)
            if is_mended:
                if step % 400 == 0:
                    monitor.ranks.append(monitor.effective_rank())
            else:
                with diary.planted():
                    monitor.ranks.append(monitor.effective_rank())  # planted
            if step % 200 == 0:
                accelerator.print(
                    f"step {step}: loss {loss.item():.3f}, rank {monitor.ranks[-1].item():.1f}", flush=True
                )
            step += 1
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(12)
    torch.set_num_threads(1)
    main()
