"""A network for tables in a loop with Accelerate; the dataset asks a database for each row, with a query of its own."""

import sqlite3
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

QUERY = """
SELECT c.age, c.income, c.tenure, c.region, c.plan, c.churned,
       COUNT(o.id), COALESCE(SUM(o.amount), 0), COALESCE(AVG(o.amount), 0), COALESCE(MAX(o.day), 0)
FROM customers c LEFT JOIN orders o ON o.customer = c.id
"""


@dataclass
class RunConfig:
    customers: int = 6000
    batch_size: int = 192
    dim: int = 32
    layers: int = 2
    lr: float = 1e-3
    log_every: int = 100


def create_database(path, config):
    rng, n = np.random.default_rng(2), config.customers
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, age, income, tenure, region, plan, churned)")
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, amount REAL, day INTEGER)")
        age, income, tenure = rng.integers(18, 80, n), rng.lognormal(10, 0.4, n), rng.integers(0, 60, n)
        region, plan = rng.integers(0, 12, n), rng.integers(0, 5, n)
        churned = (rng.random(n) < 1 / (1 + np.exp(tenure / 12 - plan))).astype(int)
        columns = (c.tolist() for c in (np.arange(n), age, income, tenure, region, plan, churned))
        db.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?, ?)", zip(*columns, strict=True))
        m = 20 * n
        orders = (c.tolist() for c in (rng.integers(0, n, m), rng.exponential(40, m), rng.integers(0, 365, m)))
        db.executemany("INSERT INTO orders (customer, amount, day) VALUES (?, ?, ?)", zip(*orders, strict=True))
        db.execute("CREATE INDEX by_customer ON orders (customer)")


def to_sample(row):
    age, income, tenure, region, plan, churned, count, total, mean, last = row
    numbers = [age / 50, np.log1p(income) / 10, tenure / 30, count / 20, total / 800, mean / 40, last / 365]
    return torch.tensor(numbers, dtype=torch.float32), torch.tensor([region, plan]), float(churned)


class CustomerDataset(Dataset):
    def __init__(self, path, size, diary, in_memory):
        self.db, self.size, self.diary = sqlite3.connect(path), size, diary
        rows = self.db.execute(QUERY + "GROUP BY c.id ORDER BY c.id").fetchall() if in_memory else []
        self.samples = [to_sample(row) for row in rows]

    def __len__(self):
        return self.size

    def query(self, index):
        return self.db.execute(QUERY + "WHERE c.id = ?", (index,)).fetchone()  # planted

    def __getitem__(self, index):
        if self.samples:
            return self.samples[index]
        with self.diary.planted():
            return to_sample(self.query(index))  # planted


class FeatureTokenizer(nn.Module):
    def __init__(self, numbers, cardinalities, dim):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(numbers, dim) * 0.1) for _ in range(2))
        self.embeddings = nn.ModuleList(nn.Embedding(size, dim) for size in cardinalities)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, numbers, categories):
        tokens = [numbers[..., None] * self.weight + self.bias]
        tokens += [table(categories[:, k])[:, None] for k, table in enumerate(self.embeddings)]
        return torch.cat([self.cls.expand(len(numbers), -1, -1), *tokens], 1)


class FTTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokenizer = FeatureTokenizer(7, (12, 5), config.dim)
        layer = nn.TransformerEncoderLayer(config.dim, 4, 3 * config.dim, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(config.dim), nn.Linear(config.dim, 1))

    def forward(self, numbers, categories):
        return self.head(self.encoder(self.tokenizer(numbers, categories))[:, 0]).squeeze(-1)


def training_function(config, diary, is_mended):
    accelerator = Accelerator(cpu=True)
    path = Path(tempfile.mkdtemp()) / "shop.db"
    create_database(path, config)
    dataset = CustomerDataset(path, config.customers, diary, in_memory=is_mended)
    model = FTTransformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    loader = DataLoader(dataset, config.batch_size, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    for epoch in range(10**6):
        model.train()
        for numbers, categories, churned in loader:  # planted
            loss = F.binary_cross_entropy_with_logits(model(numbers, categories), churned.float())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % config.log_every == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    training_function(RunConfig(), *begin())
