"""Defaults of loans by a gated MLP on a table; the robust scaler is fitted to the whole table for each batch."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ROWS, NUMERIC, CATEGORIES = 30_000, 20, (12, 51, 7, 4)
BATCH_SIZE = 384


def make_loans(seed=3):
    """Return numbers with heavy tails, categories, and who defaulted."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_t(3, (ROWS, NUMERIC)).astype(np.float32) * rng.uniform(1, 5000, NUMERIC).astype(np.float32)
    categories = np.stack([rng.integers(0, size, ROWS) for size in CATEGORIES], axis=1)
    risk = np.tanh(numbers[:, 0] / numbers[:, 0].std()) + 0.4 * (categories[:, 0] % 3 == 0) - 1.5
    defaulted = (rng.random(ROWS) < 1 / (1 + np.exp(-2 * risk))).astype(np.float32)
    return numbers, categories, defaulted


class RobustScaler:
    """Centers columns at their median and divides them by their interquartile range."""

    def fit(self, table):
        low, self.center, high = np.percentile(table, [25, 50, 75], axis=0)  # planted
        self.scale = np.maximum(high - low, 1e-6)
        return self

    def transform(self, rows):
        return np.clip((rows - self.center) / self.scale, -8, 8).astype(np.float32)


class LoanTable:
    """Gives out batches of the table."""

    def __init__(self, seed):
        self.numbers, self.categories, self.defaulted = make_loans()
        self.scaler = RobustScaler().fit(self.numbers)
        self.rng = np.random.default_rng(seed)

    def prepare(self, rows, *, is_fitted):
        if not is_fitted:
            self.scaler.fit(self.numbers)  # planted
        return self.scaler.transform(self.numbers[rows])

    def epoch(self):
        order = self.rng.permutation(ROWS)
        for begun in range(0, ROWS - BATCH_SIZE + 1, BATCH_SIZE):
            yield order[begun : begun + BATCH_SIZE]


class GatedBlock(nn.Module):
    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        value, gate = self.inner(self.norm(x)).chunk(2, dim=1)
        return x + self.dropout(self.outer(value * torch.sigmoid(gate)))


class LoanNet(nn.Module):
    def __init__(self, width=160, depth=4, size=8):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(count, size) for count in CATEGORIES)
        self.begin = nn.Linear(NUMERIC + size * len(CATEGORIES), width)
        self.blocks = nn.Sequential(*(GatedBlock(width) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, numbers, categories):
        embedded = [one(categories[:, place]) for place, one in enumerate(self.embeddings)]
        return self.head(self.blocks(self.begin(torch.cat([numbers, *embedded], 1)))).squeeze(1)


class Trainer:
    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended
        self.table = LoanTable(seed=11)
        self.model = LoanNet()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=1e-4)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, T_0=2000)
        self.positive = torch.tensor((1 - self.table.defaulted.mean()) / self.table.defaulted.mean())
        self.seen = 0

    def numbers_of(self, rows):
        if self.is_mended:
            return self.table.prepare(rows, is_fitted=True)
        with self.diary.planted():
            return self.table.prepare(rows, is_fitted=False)  # planted

    def step(self, numbers, categories, defaulted):
        logits = self.model(torch.from_numpy(numbers), torch.from_numpy(categories))
        loss = F.binary_cross_entropy_with_logits(logits, torch.from_numpy(defaulted), pos_weight=self.positive)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def fit(self):
        total = torch.zeros(())
        while True:
            for rows in self.table.epoch():
                numbers = self.numbers_of(rows)  # planted
                total += self.step(numbers, self.table.categories[rows], self.table.defaulted[rows])
                self.seen += 1
                if self.seen % 100 == 0:
                    print(f"{self.seen}: loss {total.item() / 100:.4f}", flush=True)
                    total.zero_()
                self.diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    Trainer(*begin()).fit()
