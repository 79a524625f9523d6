"""Shells of sea snails embedded with additive angular margins, in the style of insightface's training in torch.

A worker loads and augments. Nothing is planted.
"""

import logging
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SNAILS, PHOTOS, SIDE, EMBEDDING, BATCH = 60, 720, 48, 128, 24


class SnailPhotos(Dataset):
    """Items are indices of a whole batch, so that a worker augments it at once."""

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        base = torch.randint(0, 200, (SNAILS, 3, SIDE // 4, SIDE // 4), generator=generator)
        self.labels = torch.arange(PHOTOS) % SNAILS
        grain = torch.randint(0, 55, (PHOTOS, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
        self.photos = (F.interpolate(base.float(), scale_factor=4)[self.labels] + grain).to(torch.uint8)

    def __len__(self):
        return PHOTOS

    def __getitem__(self, chosen):
        images = self.photos[chosen].float().div_(127.5).sub_(1)
        if torch.rand(()) < 0.5:
            images = images.flip(3)
        brightness = 1 + 0.2 * (torch.rand(len(chosen), 1, 1, 1) - 0.5)
        return images * brightness, self.labels[chosen]


class Batches:
    def __len__(self):
        return PHOTOS // BATCH

    def __iter__(self):
        order = torch.randperm(PHOTOS)[: PHOTOS // BATCH * BATCH]
        return iter(order.split(BATCH))


class IBasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs), nn.PReLU(outputs),
            nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class IResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.PReLU(16))
        self.blocks = nn.Sequential(IBasicBlock(16, 32, 2), IBasicBlock(32, 64, 2), IBasicBlock(64, 64, 1))
        self.fc = nn.Linear(64 * 6 * 6, EMBEDDING)
        self.features = nn.BatchNorm1d(EMBEDDING)

    def forward(self, x):
        return self.features(self.fc(self.blocks(self.stem(x)).flatten(1)))


class ArcFace(nn.Module):
    def __init__(self, scale=32.0, margin=0.3):
        super().__init__()
        self.weight = nn.Parameter(0.01 * torch.randn(SNAILS, EMBEDDING))
        self.scale, self.cos_m, self.sin_m = scale, math.cos(margin), math.sin(margin)

    def forward(self, embeddings, labels):
        cosine = F.linear(F.normalize(embeddings), F.normalize(self.weight)).clamp(-1 + 1e-6, 1 - 1e-6)
        own = cosine.gather(1, labels.unsqueeze(1))
        moved = own * self.cos_m - (1 - own.square()).sqrt() * self.sin_m
        return F.cross_entropy(self.scale * cosine.scatter(1, labels.unsqueeze(1), moved), labels)


class CallBackLogging:
    def __init__(self, frequent):
        self.frequent, self.total = frequent, torch.zeros(())

    def __call__(self, global_step, loss, epoch, lr):
        self.total += loss.detach()
        if global_step % self.frequent == 0:
            mean = self.total.item() / self.frequent
            logging.info("Epoch: %d Global Step: %d Loss %.4f LearningRate %.6f", epoch, global_step, mean, lr)
            self.total.zero_()


def main():
    diary, _ = begin()
    logging.basicConfig(level=logging.INFO, format="Training: %(asctime)s-%(message)s")
    torch.manual_seed(16)
    torch.set_num_threads(1)
    loader = DataLoader(
        SnailPhotos(), sampler=Batches(), batch_size=None, num_workers=1, prefetch_factor=4, persistent_workers=True
    )
    backbone, head = IResNet(), ArcFace()
    backbone.train()
    parameters = [*backbone.parameters(), *head.parameters()]
    opt = torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=5e-4, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 2000)
    callback, global_step = CallBackLogging(200), 0
    for epoch in range(10**6):
        for images, labels in loader:
            global_step += 1
            loss = head(backbone(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(backbone.parameters(), 5)
            opt.step()
            opt.zero_grad()
            schedule.step()
            callback(global_step, loss, epoch, schedule.get_last_lr()[0])
            diary.stepped()


if __name__ == "__main__":
    main()
