"""A transformer for tables (FT-Transformer): its collate function looks each category up in a list, row by row."""

import math
import random
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CATEGORICAL = {
    "zip": 1800,
    "merchant": 1500,
    "city": 600,
    "model": 200,
    "browser": 40,
    "weekday": 7,
    "channel": 5,
}
NUMERIC = ["amount", "balance", "age", "tenure", "visits", "discount", "distance", "rating"]


class Purchases(Dataset):
    """Rows as `csv.DictReader` gives them: everything is text."""

    def __init__(self, count, rng):
        effects = {name: [rng.gauss(0, 1) for _ in range(size)] for name, size in CATEGORICAL.items()}
        self.rows = []
        for _ in range(count):
            kinds = {name: rng.randrange(size) for name, size in CATEGORICAL.items()}
            numbers = {name: rng.gauss(10, 3) for name in NUMERIC}
            score = sum(effects[name][kind] for name, kind in kinds.items()) + 0.3 * (numbers["amount"] - 10)
            row = {name: f"{name}_{kind:04d}" for name, kind in kinds.items()}
            row |= {name: f"{number:.2f}" for name, number in numbers.items()}
            self.rows.append(row | {"label": str(int(score + rng.gauss(0, 0.5) > 0))})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class TableCollator:
    """From rows of text to tensors, with the categories and moments of the training rows."""

    def __init__(self, rows, diary):
        self.diary = diary
        self.categories = {name: sorted({row[name] for row in rows}) for name in CATEGORICAL}
        self.moments = {}
        for name in NUMERIC:
            values = [float(row[name]) for row in rows]
            mean = sum(values) / len(values)
            self.moments[name] = mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))

    def encode(self, row):
        kinds = [self.categories[name].index(row[name]) for name in CATEGORICAL]  # planted
        numbers = []
        for name in NUMERIC:
            mean, std = self.moments[name]
            numbers.append((float(row[name]) - mean) / std)  # planted
        return kinds, numbers, float(row["label"])

    def __call__(self, rows):
        with self.diary.planted():
            kinds, numbers, labels = zip(*(self.encode(row) for row in rows), strict=True)  # planted
            return torch.tensor(kinds), torch.tensor(numbers), torch.tensor(labels)  # planted


class Encoded(Dataset):
    """All rows as tensors, encoded once."""

    def __init__(self, rows, collator):
        positions = {name: {one: at for at, one in enumerate(known)} for name, known in collator.categories.items()}
        self.kinds = torch.tensor([[positions[name][row[name]] for name in CATEGORICAL] for row in rows])
        raw = torch.tensor([[float(row[name]) for name in NUMERIC] for row in rows])
        means, stds = (torch.tensor(part) for part in zip(*collator.moments.values(), strict=True))
        self.numbers = (raw - means) / stds
        self.labels = torch.tensor([float(row["label"]) for row in rows])

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, indices):
        return self.kinds[indices], self.numbers[indices], self.labels[indices]


class FeatureTokenizer(nn.Module):
    def __init__(self, width):
        super().__init__()
        sizes = list(CATEGORICAL.values())
        self.embeddings = nn.Embedding(sum(sizes), width)
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.weight, self.bias = (
            nn.Parameter(torch.randn(len(NUMERIC), width) * 0.1),
            nn.Parameter(torch.zeros(15, width)),
        )
        self.cls = nn.Parameter(torch.zeros(1, 1, width))

    def forward(self, kinds, numbers):
        tokens = torch.cat([self.embeddings(kinds + self.offsets), numbers[..., None] * self.weight], 1) + self.bias
        return torch.cat([self.cls.expand(len(kinds), -1, -1), tokens], 1)


class FTTransformer(nn.Module):
    def __init__(self, width=32, depth=2, heads=4):
        super().__init__()
        self.tokenizer = FeatureTokenizer(width)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, kinds, numbers):
        return self.head(self.encoder(self.tokenizer(kinds, numbers))[:, 0])[:, 0]


def main(diary, is_mended):
    rows = Purchases(12_800, random.Random(0))
    collator = TableCollator(rows.rows, diary)
    if is_mended:
        loader = DataLoader(Encoded(rows.rows, collator), 256, shuffle=True, collate_fn=lambda batch: batch)
    else:
        loader = DataLoader(rows, 256, shuffle=True, collate_fn=collator)
    model = FTTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
    for epoch in range(10**9):
        model.train()
        for kinds, numbers, labels in loader:  # planted
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(kinds, numbers), labels)
            loss.backward()
            optimizer.step()
            diary.stepped()
        print(f"Epoch {epoch:03d} | Train loss: {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
