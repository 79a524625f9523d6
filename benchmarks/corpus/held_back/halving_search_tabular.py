"""Search for hyper-parameters of a network for tables by successive halving, all trials in one process.

Nothing is planted: a trial is judged at the end of its rung, and its model is made once.
"""

import math
import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NUMBERS, KINDS, RUNG, BATCH = 24, 8, 60, 384


@dataclass
class Space:
    """Where a trial's settings come from."""

    lr: float
    width: int
    dropout: float
    decay: float

    @classmethod
    def sample(cls):
        return cls(
            10 ** random.uniform(-3.5, -2), random.choice((256, 384, 512)), random.uniform(0, 0.3),
            10 ** random.uniform(-6, -2),
        )  # fmt: skip


class Table:
    """Numbers and categories whose product decides the class."""

    def __init__(self, rows, rule):
        self.numbers = torch.randn(rows, NUMBERS)
        self.kinds = torch.randint(KINDS, (rows, 4))
        score = self.numbers @ rule + (self.kinds[:, 0] - 3.5) * self.numbers[:, 0]
        self.target = (score + 0.5 * torch.randn(rows) > 0).float()

    def batch(self, rows):
        return self.numbers[rows], self.kinds[rows], self.target[rows]


class TabularNet(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.kinds = nn.ModuleList(nn.Embedding(KINDS, 8) for _ in range(4))
        self.first = nn.Linear(NUMBERS + 32, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width)
            )
            for _ in range(2)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, numbers, kinds):
        embedded = [table(kinds[:, i]) for i, table in enumerate(self.kinds)]
        x = self.first(torch.cat([numbers, *embedded], 1))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x).squeeze(1)


class Trial:
    def __init__(self, number, setting):
        self.number, self.setting, self.score = number, setting, math.inf
        self.model = TabularNet(setting.width, setting.dropout)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), setting.lr, weight_decay=setting.decay)

    def train(self, table, steps, diary):
        self.model.train()
        for _ in range(steps):
            numbers, kinds, target = table.batch(torch.randint(len(table.target), (BATCH,)))
            loss = F.binary_cross_entropy_with_logits(self.model(numbers, kinds), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            diary.stepped()

    @torch.inference_mode()
    def judge(self, table):
        self.model.eval()
        self.score = F.binary_cross_entropy_with_logits(self.model(table.numbers, table.kinds), table.target).item()


def successive_halving(table, held, diary, trials):
    """Train all for a rung, keep the better half, and train those twice as long."""
    steps = RUNG
    while len(trials) > 1:
        for trial in trials:
            trial.train(table, steps, diary)
            trial.judge(held)
        trials = sorted(trials, key=lambda trial: trial.score)[: len(trials) // 2]
        steps *= 2
    return trials[0]


def main(diary, _):
    torch.set_num_threads(1)
    torch.manual_seed(80), random.seed(80)
    rule = torch.randn(NUMBERS) / 2
    table, held = Table(20_000, rule), Table(1000, rule)
    best, count = math.inf, 0
    while True:
        winner = successive_halving(table, held, diary, [Trial(count + i, Space.sample()) for i in range(8)])
        count += 8
        best = min(best, winner.score)
        print(f"{count} trials, best {best:.4f}, winner {winner.number} with {winner.setting}", flush=True)


if __name__ == "__main__":
    main(*begin())
