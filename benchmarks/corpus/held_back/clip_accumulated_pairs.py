"""Contrastive training of an encoder of images and one of captions, two batches to an update.

Nothing is planted: the captions were tokenized before, and the loss in Python costs little beside both encoders.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass(frozen=True)
class Config:
    side: int = 32
    patch: int = 8
    caption: int = 16
    words: int = 400
    width: int = 128
    heads: int = 4
    layers: int = 2
    joint: int = 64
    micro_batch: int = 40
    accumulate: int = 2
    lr: float = 5e-4


class Encoder(nn.Module):
    def __init__(self, cfg, length):
        super().__init__()
        self.places = nn.Parameter(0.02 * torch.randn(length, cfg.width))
        layer = nn.TransformerEncoderLayer(
            cfg.width, cfg.heads, 3 * cfg.width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.project = nn.Linear(cfg.width, cfg.joint, bias=False)

    def forward(self, x):
        return F.normalize(self.project(self.layers(x + self.places).mean(1)), dim=-1)


class CLIP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.patches = nn.Conv2d(3, cfg.width, cfg.patch, cfg.patch)
        self.words = nn.Embedding(cfg.words, cfg.width)
        self.image = Encoder(cfg, (cfg.side // cfg.patch) ** 2)
        self.text = Encoder(cfg, cfg.caption)
        self.scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, images, captions):
        image = self.image(self.patches(images).flatten(2).transpose(1, 2))
        text = self.text(self.words(captions))
        return self.scale.clamp(max=4.6).exp() * image @ text.T


def symmetric_loss(logits):
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


class Pairs:
    """Images with a color of four quarters, and captions that name the colors."""

    def __init__(self, cfg, count):
        quarters = torch.randint(8, (count, 4))
        palette = torch.rand(8, 3)
        small = palette[quarters].view(count, 2, 2, 3).permute(0, 3, 1, 2)
        self.images = F.interpolate(small, size=(cfg.side, cfg.side)) + 0.05 * torch.randn(count, 3, cfg.side, cfg.side)
        filler = torch.randint(40, cfg.words, (count, cfg.caption))
        filler[:, 1:9:2] = quarters + 8 * torch.arange(4)
        self.captions = filler

    def batches(self, size):
        while True:
            for rows in torch.randperm(len(self.images)).split(size):
                if len(rows) == size:
                    yield self.images[rows], self.captions[rows]


def main(diary, _):
    cfg = Config()
    torch.set_num_threads(1)
    torch.manual_seed(77)
    model, batches = CLIP(cfg), Pairs(cfg, 3000).batches(cfg.micro_batch)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}])
    for update in range(1_000_000_000):
        for group in optimizer.param_groups:
            group["lr"] = cfg.lr * min(1.0, (update + 1) / 200)
        shown = 0.0
        for _ in range(cfg.accumulate):
            loss = symmetric_loss(model(*next(batches))) / cfg.accumulate
            loss.backward()
            shown = shown + loss.detach()
            diary.stepped()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if update % 25 == 0:
            print(f"update {update} loss {shown.item():.3f} scale {model.scale.exp().item():.1f}", flush=True)


if __name__ == "__main__":
    main(*begin())
