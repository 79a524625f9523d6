"""Gated embeddings of numeric features that tell which boilers fail, after tabular baselines; features are ranked."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

FEATURES = 18


class PeriodicEmbedding(nn.Module):
    """Each feature as sines and cosines of learned frequencies, through a layer of its own."""

    def __init__(self, features, frequencies, width):
        super().__init__()
        self.frequencies = nn.Parameter(0.3 * torch.randn(features, frequencies))
        self.weight = nn.Parameter(torch.randn(features, 2 * frequencies, width) / (2 * frequencies) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(features, 1, width))

    def forward(self, x):
        angles = 2 * torch.pi * self.frequencies * x[..., None]
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return F.relu(torch.baddbmm(self.bias, waves.transpose(0, 1), self.weight)).transpose(0, 1)


class GatedTable(nn.Module):
    def __init__(self, width=12, hidden=256):
        super().__init__()
        self.embedding = PeriodicEmbedding(FEATURES, 12, width)
        self.gates = nn.Parameter(torch.zeros(FEATURES, 1))
        self.layers = nn.Sequential(
            nn.Linear(FEATURES * width, hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        embedded = self.embedding(x) * (2 * self.gates.sigmoid())
        return self.layers(embedded.flatten(1)).squeeze(1)


class BoilerData:
    """Readings of boilers, and whether they failed within the month."""

    def __init__(self, count, seed=5):
        generator = torch.Generator().manual_seed(seed)
        self.readings = torch.randn(count, FEATURES, generator=generator)
        pressure, hours, chalk = self.readings[:, 0], self.readings[:, 3], self.readings[:, 7]
        risk = 1.5 * (2 * pressure).sin() + hours * chalk - 1 + 0.3 * self.readings[:, 10:].sum(1)
        self.failed = (risk + torch.randn(count, generator=generator) > 0).float()

    def batches(self, batch_size):
        for chosen in torch.randperm(len(self.readings)).split(batch_size):
            yield self.readings[chosen], self.failed[chosen]


@torch.no_grad()
def rank_features(model, data, rows=768):
    """Rank features by how much the loss grows when a feature's column is shuffled."""
    model.eval()
    readings, failed = data.readings[:rows], data.failed[:rows]
    usual = F.binary_cross_entropy_with_logits(model(readings), failed)
    growths = []
    for feature in range(FEATURES):
        shuffled = readings.clone()
        shuffled[:, feature] = readings[torch.randperm(rows), feature]
        growths.append(F.binary_cross_entropy_with_logits(model(shuffled), failed) - usual)  # planted
    model.train()
    return torch.stack(growths).argsort(descending=True)


class Trainer:
    def __init__(self, model, diary, is_mended):
        self.model, self.diary, self.is_mended = model, diary, is_mended
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5, fused=True)
        self.train_data, self.validation_data = BoilerData(60_000), BoilerData(4096, seed=6)
        self.ranking, self.steps = None, 0

    def train_step(self, readings, failed):
        loss = F.binary_cross_entropy_with_logits(self.model(readings), failed)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def after_step(self):
        self.steps += 1
        if not self.is_mended and self.steps % 25 == 0:
            with self.diary.planted():
                self.ranking = rank_features(self.model, self.validation_data)  # planted

    def fit(self):
        self.model.train()
        epoch = 0
        while True:
            total, count = torch.zeros(()), 0
            for readings, failed in self.train_data.batches(256):
                total += self.train_step(readings, failed)
                count += 1
                self.after_step()  # planted
                self.diary.stepped()
            epoch += 1
            if epoch % 10 == 0:
                self.ranking = rank_features(self.model, self.validation_data)
            if epoch % 2 == 0:
                first = [] if self.ranking is None else self.ranking[:3].tolist()
                print(f"epoch {epoch}: loss {total.item() / count:.4f}, first features {first}", flush=True)


def main():
    diary, is_mended = begin()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    Trainer(GatedTable(), diary, is_mended).fit()


if __name__ == "__main__":
    main()
