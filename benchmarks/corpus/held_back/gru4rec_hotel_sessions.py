"""The next hotel of a session by GRU4Rec; another process turns clicks into shards of arrays in a spool folder.

Planted: the next shard is made when the last is read to its end and removed, and the training looks five
times a second whether it is there. Mended: the other process is up to four shards ahead.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

HOTELS, LENGTH, BATCH, BATCHES = 2500, 20, 64, 9


def click_sessions(rng, sessions):
    """Return sessions: walks among hotels of the same town, with a jump now and then."""
    towns = rng.integers(HOTELS // 50, size=(sessions, 1)) * 50
    steps = rng.geometric(0.15, size=(sessions, LENGTH + 1)).cumsum(1) % 50
    jumps = rng.random((sessions, LENGTH + 1)) < 0.04
    return np.where(jumps, rng.integers(HOTELS, size=jumps.shape), towns + steps).astype(np.int32)


def make_shards(spool, ahead):
    """Write shards, at most so many that nobody has read."""
    rng = np.random.default_rng(64)
    parent = os.getppid()
    for number in count():
        while len(list(spool.glob("shard-*.npy"))) >= ahead:
            time.sleep(0.02)
            if os.getppid() != parent:
                return
        partial = spool / "partial.npy"
        np.save(partial, click_sessions(rng, BATCH * BATCHES))
        partial.rename(spool / f"shard-{number:06d}.npy")


def wait_for(path):
    while not path.exists():
        time.sleep(0.2)  # planted


def batches(spool, diary):
    for number in count():
        path = spool / f"shard-{number:06d}.npy"
        with diary.planted():
            wait_for(path)  # planted
        sessions = torch.from_numpy(np.load(path)).long()
        yield from sessions.split(BATCH)
        path.unlink()


class GRU4Rec(nn.Module):
    def __init__(self, hotels, dim=64, hidden=96):
        super().__init__()
        self.hotels = nn.Embedding(hotels, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.project = nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(0.1)

    def forward(self, sessions):
        states, _ = self.gru(self.dropout(self.hotels(sessions[:, :-1])))
        return self.project(states).flatten(0, 1)


def sampled_loss(model, queries, targets, negatives=512):
    """Cross entropy among the target and hotels that were drawn for the whole batch."""
    drawn = torch.randint(HOTELS, (negatives,))
    right = (queries * model.hotels(targets)).sum(1, keepdim=True)
    others = queries @ model.hotels(drawn).T
    others = others.masked_fill(targets[:, None] == drawn, -1e4)
    return F.cross_entropy(torch.cat((right, others), 1), torch.zeros(len(targets), dtype=torch.long))


def train(diary, mended):
    spool = Path(tempfile.mkdtemp(prefix="hotel-spool-"))
    maker = multiprocessing.get_context("fork").Process(
        target=make_shards, args=(spool, 4 if mended else 1), daemon=True
    )
    maker.start()
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = GRU4Rec(HOTELS)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for step, sessions in enumerate(batches(spool, diary), start=1):  # planted
        queries = model(sessions)
        loss = sampled_loss(model, queries, sessions[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    train(*begin())
