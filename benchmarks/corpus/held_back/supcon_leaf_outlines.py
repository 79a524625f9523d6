"""Supervised contrastive learning of leaf outlines: two views a leaf, batches of classes, and a rare probe.

Nothing is planted: views are made for the whole batch at once, and the probe of neighbors is rare.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SPECIES, LEAVES, POINTS = 40, 30, 128
CLASSES_A_BATCH, LEAVES_A_CLASS = 16, 4
TEMPERATURE = 0.1


def grow_leaves():
    """Return outlines as distance and curvature around the center, per species and leaf."""
    angles = torch.linspace(0, 2 * torch.pi, POINTS + 1)[:-1]
    waves = torch.randn(SPECIES, 1, 8, 1) / torch.arange(1, 9)[:, None]
    waves = waves + 0.15 * torch.randn(SPECIES, LEAVES, 8, 1)
    distance = 1 + 0.2 * (waves * torch.cos(torch.arange(1, 9)[:, None] * angles)).sum(2)
    curvature = distance.roll(1, -1) - 2 * distance + distance.roll(-1, -1)
    return torch.stack([distance, 20 * curvature], 2)


def two_views(outlines):
    """Turn, scale and blur outlines: the same ones twice, each in its own way."""
    both = outlines.repeat(2, 1, 1)
    turn = torch.randint(POINTS, (len(both), 1))
    places = (torch.arange(POINTS) + turn) % POINTS
    turned = both.gather(2, places[:, None].expand_as(both))
    return turned * (0.8 + 0.4 * torch.rand(len(both), 1, 1)) + 0.03 * torch.randn_like(turned)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, channels, 5, padding=2, padding_mode="circular"),
            nn.GroupNorm(4, channels),
            nn.ReLU(),
            nn.Conv1d(channels, channels, 5, padding=2, padding_mode="circular"),
            nn.GroupNorm(4, channels),
        )

    def forward(self, x):
        return F.relu(x + self.body(x))


class Encoder(nn.Module):
    def __init__(self, channels=32, size=64):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(2, channels, 7, stride=2, padding=3), Residual(channels), nn.AvgPool1d(2), Residual(channels)
        )
        self.project = nn.Sequential(nn.Linear(channels, size), nn.ReLU(), nn.Linear(size, size))

    def features(self, x):
        return self.trunk(x).mean(2)

    def forward(self, x):
        return F.normalize(self.project(self.features(x)), dim=1)


class SupConLoss(nn.Module):
    def forward(self, embeddings, labels):
        itself = torch.eye(len(labels), dtype=torch.bool)
        logits = (embeddings @ embeddings.T / TEMPERATURE).masked_fill(itself, -1e9)
        positive = (labels[:, None] == labels) & ~itself
        log_prob = F.log_softmax(logits, dim=1)
        return -((log_prob * positive).sum(1) / positive.sum(1)).mean()


def draw_batch(leaves):
    species = torch.randperm(SPECIES)[:CLASSES_A_BATCH]
    which = torch.rand(CLASSES_A_BATCH, leaves.shape[1]).argsort(1)[:, :LEAVES_A_CLASS]
    return leaves[species[:, None], which].flatten(0, 1), species.repeat_interleave(LEAVES_A_CLASS)


@torch.no_grad()
def probe(encoder, known, held):
    """Return how often the nearest known leaf of a held one is of its species."""
    labels = torch.arange(SPECIES)
    table = F.normalize(encoder.features(known.flatten(0, 1)), dim=1)
    asked = F.normalize(encoder.features(held.flatten(0, 1)), dim=1)
    nearest = (asked @ table.T).argmax(1) // known.shape[1]
    return (nearest == labels.repeat_interleave(held.shape[1])).float().mean().item()


def main():
    diary, _ = begin()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    leaves = grow_leaves()
    known, held = leaves[:, :-4], leaves[:, -4:]
    encoder, criterion = Encoder(), SupConLoss()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    step = 0
    while True:
        outlines, labels = draw_batch(known)
        embeddings = encoder(two_views(outlines))
        loss = criterion(embeddings, labels.repeat(2))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 400 == 0:
            print(f"step {step}: loss {loss.item():.4f} nearest {probe(encoder, known, held):.3f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
