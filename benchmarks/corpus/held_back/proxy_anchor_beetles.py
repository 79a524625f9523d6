"""Beetles in drawers told apart by proxies, in the style of the Proxy Anchor repository, with a catalogue in SQLite.

Batches of a few pictures for each of a few species are chosen by queries on a column without an index.
"""

import sqlite3
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SPECIES, PICTURES, CATALOGUE, SIDE = 150, 2000, 40_000, 32
SPECIES_PER_BATCH, PER_SPECIES = 10, 4


def make_catalogue(is_mended):
    rng = np.random.default_rng(3)
    species = rng.integers(0, SPECIES, CATALOGUE)
    rows = [
        (number, f"drawer_{number % 977:04d}", int(one), f"plates/{number:06d}.jpg", number % PICTURES)
        for number, one in enumerate(species)
    ]
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE TABLE specimens (id INTEGER PRIMARY KEY, drawer, species INTEGER, path, picture INTEGER)"
    )
    connection.executemany("INSERT INTO specimens VALUES (?, ?, ?, ?, ?)", rows)
    if is_mended:
        connection.execute("CREATE INDEX specimens_by_species ON specimens (species)")
    connection.commit()
    return connection


class BalancedBatches:
    def __init__(self, connection, images):
        self.connection, self.images = connection, images
        self.rng = np.random.default_rng(8)

    def choose(self):
        pictures, labels = [], []
        for species in self.rng.choice(SPECIES, SPECIES_PER_BATCH, replace=False).tolist():
            query = "SELECT picture FROM specimens WHERE species = ? ORDER BY random() LIMIT ?"
            rows = self.connection.execute(query, (species, PER_SPECIES)).fetchall()  # planted
            pictures += [picture for (picture,) in rows]
            labels += [species] * len(rows)
        return pictures, labels

    def load(self, pictures, labels):
        return self.images[torch.tensor(pictures)], torch.tensor(labels)


class ProxyAnchor(nn.Module):
    def __init__(self, width, margin=0.1, alpha=32):
        super().__init__()
        self.proxies = nn.Parameter(nn.init.kaiming_normal_(torch.empty(SPECIES, width), mode="fan_out"))
        self.margin, self.alpha = margin, alpha

    def forward(self, features, labels):
        cosine = F.normalize(features) @ F.normalize(self.proxies).t()
        is_own = F.one_hot(labels, SPECIES).bool()
        pulled = torch.exp(-self.alpha * (cosine - self.margin)) * is_own
        pushed = torch.exp(self.alpha * (cosine + self.margin)) * ~is_own
        own = torch.log1p(pulled.sum(dim=0)).sum() / is_own.any(dim=0).sum()
        return own + torch.log1p(pushed.sum(dim=0)).sum() / SPECIES


def embedding_net(width):
    layers, inputs = [], 3
    for outputs, stride in ((24, 2), (48, 1), (64, 2), (96, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, width))


diary, is_mended = begin()
torch.manual_seed(9)
torch.set_num_threads(1)
images = 0.6 * torch.randn(PICTURES, 3, SIDE, SIDE) + torch.randn(PICTURES, 3, 1, 1)
batches = BalancedBatches(make_catalogue(is_mended), images)
model, criterion = embedding_net(128), ProxyAnchor(128)
opt = torch.optim.AdamW(
    [{"params": model.parameters()}, {"params": criterion.parameters(), "lr": 1e-2}], lr=1e-4, fused=True
)

for epoch in range(10**6):
    losses = torch.zeros(())
    for _ in range(200):
        if is_mended:
            chosen = batches.choose()
        else:
            with diary.planted():
                chosen = batches.choose()  # planted
        x, y = batches.load(*chosen)
        m = model(x)
        loss = criterion(m, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 10)
        opt.step()
        losses += loss.detach()
        diary.stepped()
    print(f"Train Epoch: {epoch} Loss: {losses.item() / 200:.4f}", flush=True)
