"""Matrix factorization with negative samples, as in many recommenders; negatives are drawn in Python, pair by pair."""

import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

USERS, ITEMS, NEGATIVES = 2_000, 5_000, 8


class NeuMF(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user, item):
        return self.mlp(torch.cat([self.users(user), self.items(item)], dim=-1)).squeeze(-1)


class Interactions:
    """What users clicked, and what they did not."""

    def __init__(self):
        rng = random.Random(7)
        self.clicked = {user: {rng.randrange(ITEMS) for _ in range(40)} for user in range(USERS)}
        self.pairs = [(user, item) for user, items in self.clicked.items() for item in sorted(items)]
        self.rng = rng

    def negatives(self, user):
        found = []
        while len(found) < NEGATIVES:
            item = self.rng.randrange(ITEMS)
            if item not in self.clicked[user]:  # planted
                found.append(item)
        return found

    def batch(self, size):
        users, items, labels = [], [], []
        for user, item in self.rng.choices(self.pairs, k=size):
            rejected = self.negatives(user)  # planted
            users += [user] * (1 + NEGATIVES)
            items += [item, *rejected]
            labels += [1.0] + [0.0] * NEGATIVES
        return torch.tensor(users), torch.tensor(items), torch.tensor(labels)


def quick_batch(pairs, size):
    chosen = pairs[torch.randint(len(pairs), (size,))]
    users = chosen[:, 0].repeat_interleave(1 + NEGATIVES)
    items = torch.randint(ITEMS, (size, 1 + NEGATIVES))
    items[:, 0] = chosen[:, 1]
    labels = torch.zeros(size, 1 + NEGATIVES)
    labels[:, 0] = 1.0
    return users, items.flatten(), labels.flatten()


def fit(diary, is_mended):
    torch.manual_seed(7)
    torch.set_num_threads(1)
    data, model = Interactions(), NeuMF()
    pairs = torch.tensor(data.pairs)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    step, size = 0, 256
    while True:
        if is_mended:
            user, item, label = quick_batch(pairs, size)
        else:
            with diary.planted():
                user, item, label = data.batch(size)  # planted
        loss = F.binary_cross_entropy_with_logits(model(user, item), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        diary.stepped()
        if step % 500 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    fit(*begin())
