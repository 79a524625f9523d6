"""Retrieval of ceramic shards with a cross-batch memory, in the style of the XBM repository's engine.

The memory of embeddings is shifted with torch.cat, so that each step copies all of it.
"""

import logging
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VESSELS, VIEWS, PIXELS = 60, 12, 32
MEMORY, WIDTH = 20_480, 256
PER_BATCH, PER_CLASS = 4, 4


def conv(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class ShardNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), conv(32, 64, 1), conv(64, 96, 2))
        self.head = nn.Linear(96, WIDTH)

    def forward(self, images):
        return F.normalize(self.head(self.trunk(images).mean(dim=(2, 3))), dim=1)


class CrossBatchMemory:
    def __init__(self, is_mended):
        self.features = F.normalize(torch.randn(MEMORY, WIDTH), dim=1)
        self.targets = torch.full((MEMORY,), -1)
        self.is_mended = is_mended
        self.oldest = 0

    def enqueue_dequeue(self, features, targets):
        count = len(targets)
        if self.is_mended:
            self.features[self.oldest : self.oldest + count] = features
            self.targets[self.oldest : self.oldest + count] = targets
            self.oldest = (self.oldest + count) % MEMORY
            return
        self.features = torch.cat([self.features[count:], features])  # planted
        self.targets = torch.cat([self.targets[count:], targets])


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=0.5):
        super().__init__()
        self.margin = margin

    def forward(self, features, targets, others, other_targets):
        similarity = features @ others.t()
        is_same = targets[:, None] == other_targets[None, :]
        attracted = ((1 - similarity) * is_same).sum()
        repelled = (F.relu(similarity - self.margin) * ~is_same).sum()
        return (attracted + repelled) / len(targets)


def make_collection():
    shapes = torch.randn(VESSELS, 1, 3, PIXELS, PIXELS)
    return shapes + 0.7 * torch.randn(VESSELS, VIEWS, 3, PIXELS, PIXELS)


def sample_batch(images):
    vessels = torch.randperm(VESSELS)[:PER_BATCH].repeat_interleave(PER_CLASS)
    views = torch.randint(VIEWS, (PER_BATCH * PER_CLASS,))
    return images[vessels, views], vessels


def do_train(diary, is_mended, images, model, optimizer, criterion, log):
    memory = CrossBatchMemory(is_mended)
    model.train()
    iteration = 0
    while True:
        batch, targets = sample_batch(images)
        features = model(batch)
        if is_mended:
            memory.enqueue_dequeue(features.detach(), targets)
        else:
            with diary.planted():
                memory.enqueue_dequeue(features.detach(), targets)  # planted
        loss = criterion(features, targets, features, targets)
        loss = loss + criterion(features, targets, memory.features, memory.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        iteration += 1
        diary.stepped()
        if iteration % 200 == 0:
            log.info("iteration %d loss %.3f", iteration, loss.item())


def main():
    diary, is_mended = begin()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = ShardNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, weight_decay=5e-4, fused=True)
    do_train(diary, is_mended, make_collection(), model, optimizer, ContrastiveLoss(), logging.getLogger("xbm"))


if __name__ == "__main__":
    main()
