"""Ranking of items by implicit feedback with BPR; a negative is looked up in the list of what its user knows."""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import torch
from torch import nn
from torch.nn.functional import logsigmoid

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

N_USERS, N_ITEMS = 1500, 6000


class Interactions:
    """Who has seen what: pairs to train with, and each user's history."""

    def __init__(self, rng):
        taste = rng.integers(0, 4, N_USERS)
        self.history = []
        for user in range(N_USERS):
            own = rng.choice(N_ITEMS // 4, size=rng.integers(100, 700), replace=False) * 4 + taste[user]
            self.history.append(own.tolist())
        users = np.repeat(np.arange(N_USERS), [len(h) for h in self.history])
        self.pairs = np.stack([users, np.concatenate(self.history)], 1)


class NegativeSampler:
    def __init__(self, history, rng):
        self.known, self.rng = history, rng

    def clashes(self, users, items):
        pairs = zip(users.tolist(), items.tolist(), strict=True)
        return np.array([item in self.known[user] for user, item in pairs])  # planted

    def draw(self, users):
        negatives = self.rng.integers(0, N_ITEMS, len(users))
        wrong = np.arange(len(users))
        while len(wrong):
            wrong = wrong[self.clashes(users[wrong], negatives[wrong])]  # planted
            negatives[wrong] = self.rng.integers(0, N_ITEMS, len(wrong))
        return negatives


class TableSampler(NegativeSampler):
    """Looks up all pairs at once in a table of who knows what."""

    def __init__(self, history, rng):
        super().__init__(history, rng)
        self.table = np.zeros((N_USERS, N_ITEMS), bool)
        for user, items in enumerate(history):
            self.table[user, items] = True

    def clashes(self, users, items):
        return self.table[users, items]


class Scorer(nn.Module):
    """Factors of users and items with a small network over both."""

    def __init__(self, dim=48, hidden=256):
        super().__init__()
        self.users, self.items = nn.Embedding(N_USERS, dim), nn.Embedding(N_ITEMS, dim)
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.items.weight, std=0.1)
        self.bias = nn.Embedding(N_ITEMS, 1)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, users, items):
        u, i = self.users(users), self.items(items)
        return ((u * i).sum(1, keepdim=True) + self.mlp(torch.cat([u, i], 1)) + self.bias(items)).squeeze(1)


def hit_rate(model, users, positives, rng):
    """How often a positive is among the ten best of a hundred."""
    with torch.inference_mode():
        candidates = np.concatenate([positives[:, None], rng.integers(0, N_ITEMS, (len(users), 99))], 1)
        flat = torch.from_numpy(candidates).flatten()
        scores = model(torch.from_numpy(users).repeat_interleave(100), flat).view(-1, 100)
        return (scores[:, :1] < scores).sum(1).lt(10).float().mean().item()


def fit(diary, is_mended, batch_size=1024):
    rng = np.random.default_rng(8)
    data = Interactions(rng)
    sampler, model = (TableSampler if is_mended else NegativeSampler)(data.history, rng), Scorer()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    steps = 0
    while True:
        order = rng.permutation(len(data.pairs))
        for begun in range(0, len(order) - batch_size + 1, batch_size):
            users, positives = data.pairs[order[begun : begun + batch_size]].T
            with diary.planted():
                negatives = sampler.draw(users)  # planted
            u, p, n = (torch.from_numpy(np.ascontiguousarray(ids)) for ids in (users, positives, negatives))
            scores = model(u.repeat(2), torch.cat([p, n]))
            loss = -logsigmoid(scores[:batch_size] - scores[batch_size:]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            diary.stepped()
            if steps % 200 == 0:
                print(f"{steps} loss {loss.item():.4f} hits {hit_rate(model, users[:50], positives[:50], rng):.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(8)
    fit(*begin())
