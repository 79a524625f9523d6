"""A recommender with two towers.

A thread summarizes the table of popular items under a lock, and each batch asks for the same lock.
"""

import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Popularity:
    """How often items were seen, summarized for a page again and again."""

    def __init__(self, items, holds_lock):
        self.counts, self.lock, self.holds_lock = torch.zeros(items), threading.Lock(), holds_lock
        self.top = []

    def summarize_forever(self):
        while True:
            if self.holds_lock:
                with self.lock:
                    self.top = self.counts.topk(10).indices.tolist()
                    time.sleep(0.02)
            else:
                with self.lock:
                    counts = self.counts.clone()
                self.top = counts.topk(10).indices.tolist()
                time.sleep(0.02)
            time.sleep(0.004)

    def seen(self, items):
        self.lock.acquire()  # planted
        self.counts.index_add_(0, items, torch.ones(len(items)))
        self.lock.release()


class Tower(nn.Module):
    def __init__(self, rows, width=64):
        super().__init__()
        self.embedding = nn.Embedding(rows, width)
        self.mlp = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, width))

    def forward(self, ids):
        return F.normalize(self.mlp(self.embedding(ids)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, users, items):
        super().__init__()
        self.user, self.item = Tower(users), Tower(items)

    def forward(self, users, items):
        return self.user(users) @ self.item(items).T / 0.05


class Recommender:
    def __init__(self, diary, is_mended, users=5000, items=3000):
        self.diary, self.model = diary, TwoTower(users, items)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.popularity = Popularity(items, holds_lock=not is_mended)
        self.users, self.items = torch.randint(users, (60_000,)), torch.randint(items, (60_000,))
        threading.Thread(target=self.popularity.summarize_forever, daemon=True).start()

    def train_epoch(self, epoch):
        order = torch.randperm(len(self.users))
        for batch in order.split(512):
            users, items = self.users[batch], self.items[batch]
            with self.diary.planted():
                self.popularity.seen(items)  # planted
            loss = F.cross_entropy(self.model(users, items), torch.arange(len(users)))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.diary.stepped()
        print("epoch", epoch, "loss", loss.item(), "top", self.popularity.top[:3], flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    recommender = Recommender(*begin())
    for number in range(1_000_000):
        recommender.train_epoch(number)
