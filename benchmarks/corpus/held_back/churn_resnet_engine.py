"""Customers who leave, by a residual network and an engine; a ranking score sorts a long window at each step."""

import sys
from collections import deque
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class ResidualBlock(nn.Module):
    def __init__(self, width, hidden, dropout):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width))

    def forward(self, x):
        return x + self.body(self.norm(x))


class TabularResNet(nn.Module):
    def __init__(self, numbers=24, cards=(12, 40, 7, 300), width=128, hidden=192, depth=4):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(card, 12) for card in cards)
        self.first = nn.Linear(numbers + 12 * len(cards), width)
        self.blocks = nn.Sequential(*(ResidualBlock(width, hidden, 0.1) for _ in range(depth)))
        self.head = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, numbers, classes):
        embedded = [table(column) for table, column in zip(self.tables, classes.unbind(1), strict=True)]
        return self.head(self.blocks(self.first(torch.cat([numbers, *embedded], 1))))[:, 0]


class WindowedAuroc:
    """The area under the curve of the last batches."""

    def __init__(self, batches=160):
        self.scores, self.labels = deque(maxlen=batches), deque(maxlen=batches)

    def update(self, scores, labels):
        self.scores.append(scores.detach())
        self.labels.append(labels)

    def compute(self):
        scores, labels = torch.cat(tuple(self.scores)), torch.cat(tuple(self.labels))
        order = scores.argsort()  # planted
        ranks = torch.empty_like(scores, dtype=torch.double)
        ranks[order] = torch.arange(1, len(scores) + 1, dtype=torch.double)
        positive = labels > 0.5
        n_pos = int(positive.sum())
        n_neg = len(labels) - n_pos
        return float((ranks[positive].sum() - n_pos * (n_pos + 1) / 2) / max(n_pos * n_neg, 1))


class Engine:
    def __init__(self, model, optimizer, diary, score_every):
        self.model, self.optimizer, self.diary = model, optimizer, diary
        self.criterion, self.auroc, self.score_every = nn.BCEWithLogitsLoss(), WindowedAuroc(), score_every
        self.iteration, self.score = 0, 0.0

    def train_step(self, numbers, classes, labels):
        logits = self.model(numbers, classes)
        loss = self.criterion(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.auroc.update(logits, labels)
        return loss

    def run(self, batches):
        for batch in batches:
            loss = self.train_step(*batch)
            self.iteration += 1
            if self.iteration % self.score_every == 0:
                with self.diary.planted():
                    self.score = self.auroc.compute()  # planted
            if self.iteration % 100 == 0:
                print(f"{self.iteration}: loss {loss.item():.4f} auroc {self.score:.4f}", flush=True)
            self.diary.stepped()


def table_batches(rows=60_000, batch=1024):
    numbers = torch.randn(rows, 24)
    classes = torch.stack([torch.randint(0, card, (rows,)) for card in (12, 40, 7, 300)], 1)
    chance = (numbers[:, :6].sum(1) * 0.4 + (classes[:, 1] % 5 - 2) * 0.5 - 1).sigmoid()
    labels = torch.bernoulli(chance)
    while True:
        for rows_of_batch in torch.randperm(rows).split(batch):
            yield numbers[rows_of_batch], classes[rows_of_batch], labels[rows_of_batch]


def main():
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(21)
    model = TabularResNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-5)
    Engine(model, optimizer, diary, score_every=100 if is_mended else 1).run(table_batches())


if __name__ == "__main__":
    main()
