"""Prototypical networks: episodes of ten classes with five examples and five questions each.

Nothing is planted: the images of a class are one row of a tensor, and a whole episode is drawn at once.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, PER_CLASS, WAY, SHOT, ASKED = 20, 20, 10, 5, 5


class GlyphSet:
    """Classes are random strokes; an example is a class with noise and a shift."""

    def __init__(self, classes):
        coarse = (torch.rand(classes, 1, 1, 5, 5) > 0.6).float()
        clean = coarse.repeat_interleave(4, 3).repeat_interleave(4, 4)
        self.images = clean + 1.5 * torch.randn(classes, PER_CLASS, 1, SIDE, SIDE)

    def episode(self):
        """Return WAY x (SHOT + ASKED) images, each class turned as a whole."""
        classes = torch.randperm(len(self.images))[:WAY]
        rows = torch.rand(WAY, PER_CLASS).argsort(1)[:, : SHOT + ASKED]
        images = self.images[classes[:, None], rows]
        return torch.rot90(images, int(torch.randint(4, ())), (3, 4))


def block(n_in, n_out):
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2))


class Embedding(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.blocks = nn.Sequential(block(1, width // 2), block(width // 2, width), block(width, 2 * width))
        self.out = nn.Linear(2 * width * 4, 64)

    def forward(self, images):
        return self.out(self.blocks(images).flatten(1))


def prototype_loss(embed, images):
    h = embed(images.flatten(0, 1)).view(WAY, SHOT + ASKED, -1)
    prototypes = h[:, :SHOT].mean(1)
    questions = h[:, SHOT:].flatten(0, 1)
    logits = -torch.cdist(questions, prototypes).square()
    target = torch.arange(WAY).repeat_interleave(ASKED)
    return F.cross_entropy(logits, target), (logits.argmax(1) == target).float().mean()


class Averaged:
    """A mean of the latest values, kept as tensors until somebody reads it."""

    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value.detach())

    def take(self):
        mean = torch.stack(self.values).mean().item()
        self.values.clear()
        return mean


def evaluate(embed, data, episodes):
    embed.eval()
    with torch.inference_mode():
        accuracy = torch.stack([prototype_loss(embed, data.episode())[1] for _ in range(episodes)]).mean().item()
    embed.train()
    return accuracy


def meta_train(diary, _):
    torch.set_num_threads(1)
    torch.manual_seed(50)
    known, unknown, embed = GlyphSet(300), GlyphSet(60), Embedding()
    optimizer = torch.optim.Adam(embed.parameters(), lr=1e-3)
    halving = torch.optim.lr_scheduler.StepLR(optimizer, 2000, 0.5)
    losses, accuracies, best = Averaged(), Averaged(), 0.0
    for number in range(1, 1_000_000_000):
        loss, accuracy = prototype_loss(embed, known.episode())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        halving.step()
        losses.add(loss)
        accuracies.add(accuracy)
        diary.stepped()
        if number % 100 == 0:
            best = max(best, evaluate(embed, unknown, 8))
            print(f"episode {number} loss {losses.take():.3f} accuracy {accuracies.take():.3f} best {best:.3f}")


if __name__ == "__main__":
    meta_train(*begin())
