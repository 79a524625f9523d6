"""Deep Interest Network for a flea market's app: what was looked at before, weighted by the offer that is shown.

Categorical values get their rows by the hashing trick; the dataset hashes the strings of each batch with MD5.
"""

import hashlib
import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BUCKETS, HISTORY = 20_000, 24
FIELDS = ("user", "city", "device", "hour", "seller")


def make_log(rows, seed=5):
    """Return impressions as an application would log them, and whether they were clicked."""
    rng = random.Random(seed)
    log, clicked = [], []
    for _ in range(rows):
        taste = rng.randrange(30)
        offer = taste if rng.random() < 0.4 else rng.randrange(30)
        log.append(
            {
                "user": f"u{rng.randrange(3_000)}",
                "city": f"city-{rng.randrange(80)}",
                "device": rng.choice(("android", "ios", "web")),
                "hour": str(rng.randrange(24)),
                "seller": f"s{rng.randrange(900)}",
                "offer": f"{offer}/{rng.randrange(100)}",
                "seen": [f"{taste}/{rng.randrange(100)}" for _ in range(HISTORY)],
            }
        )
        clicked.append(float(offer == taste and rng.random() < 0.7))
    return log, torch.tensor(clicked)


def bucket(field, value):
    digest = hashlib.md5(f"{field}={value}".encode()).hexdigest()  # planted
    return int(digest, 16) % BUCKETS  # planted


class Impressions(Dataset):
    """Whole batches: an index is a list of rows."""

    def __init__(self, log, clicked, diary, is_mended):
        self.log, self.clicked, self.diary = log, clicked, diary
        self.hashed = self.encode(log) if is_mended else None

    def encode(self, rows):
        fields = [[bucket(field, row[field]) for field in FIELDS] for row in rows]  # planted
        offers = [bucket("item", row["offer"]) for row in rows]  # planted
        seen = [[bucket("item", item) for item in row["seen"]] for row in rows]  # planted
        return torch.tensor(fields), torch.tensor(offers), torch.tensor(seen)

    def __len__(self):
        return len(self.log)

    def __getitem__(self, rows):
        if self.hashed is not None:
            return *(column[rows] for column in self.hashed), self.clicked[rows]
        with self.diary.planted():
            encoded = self.encode([self.log[row] for row in rows])  # planted
        return *encoded, self.clicked[rows]


class Dice(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.alpha = nn.BatchNorm1d(width, affine=False), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        gate = torch.sigmoid(self.norm(x))
        return gate * x + (1 - gate) * self.alpha * x


class DIN(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.table = nn.Embedding(BUCKETS, dim)
        self.attention = nn.Sequential(nn.Linear(4 * dim, 72), nn.PReLU(), nn.Linear(72, 1))
        width = (len(FIELDS) + 3) * dim
        self.head = nn.Sequential(nn.Linear(width, 160), Dice(160), nn.Linear(160, 80), Dice(80), nn.Linear(80, 1))

    def forward(self, fields, offers, seen):
        offer, past = self.table(offers), self.table(seen)
        asked = offer.unsqueeze(1).expand_as(past)
        weights = self.attention(torch.cat([asked, past, asked - past, asked * past], dim=-1))
        interest = (weights * past).sum(1)
        return self.head(torch.cat([self.table(fields).flatten(1), offer, interest, offer * interest], 1)).squeeze(1)


def train(diary, is_mended):
    torch.manual_seed(5)
    torch.set_num_threads(1)
    data = Impressions(*make_log(20_000), diary, is_mended)
    sampler = BatchSampler(RandomSampler(data), batch_size=320, drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    model = DIN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    criterion = nn.BCEWithLogitsLoss()
    step = 0
    while True:
        for fields, offers, seen, clicked in loader:  # planted
            loss = criterion(model(fields, offers, seen), clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            diary.stepped()
            if step % 300 == 0:
                print(f"step {step} logloss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(*begin())
