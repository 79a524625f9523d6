"""SAINT on a clinic's stays: attention over the columns of a row and over the rows of a batch.

The table is a packed CSV file with gaps; for each batch it is read anew from the top to the rows of the batch.
"""

import gzip
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

COLUMNS, ROWS, BATCH = 20, 29_952, 128


def write_stays(path):
    rng = np.random.default_rng(17)
    values = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    days = np.log1p(np.abs(values[:, 0] * values[:, 3] + values[:, 7] ** 2 + 0.1 * rng.normal(size=ROWS)))
    missing = rng.random((ROWS, COLUMNS)) < 0.05
    with gzip.open(path, "wt") as file:
        file.write(",".join([*(f"c{column}" for column in range(COLUMNS)), "days"]) + "\n")
        for row, gaps, target in zip(values, missing, days, strict=True):
            cells = ["nan" if gap else f"{value:.4f}" for value, gap in zip(row, gaps, strict=True)]
            file.write(",".join([*cells, f"{target:.4f}"]) + "\n")


def as_tensors(table):
    gaps = np.isnan(table[:, :-1])
    values = torch.from_numpy(np.nan_to_num(table[:, :-1]).astype(np.float32))
    return values, torch.from_numpy(gaps), torch.from_numpy(table[:, -1].astype(np.float32))


class StaysReader:
    """Goes through the file in batches, in an order by chance."""

    def __init__(self, path, diary):
        self.path, self.diary = path, diary

    def read(self, start):
        table = np.loadtxt(self.path, delimiter=",", skiprows=1 + start, max_rows=BATCH)  # planted
        return as_tensors(table)

    def __iter__(self):
        for index in torch.randperm(ROWS // BATCH).tolist():
            with self.diary.planted():
                batch = self.read(index * BATCH)  # planted
            yield batch


class StaysInMemory:
    """The same batches, read once."""

    def __init__(self, path):
        table = np.loadtxt(path, delimiter=",", skiprows=1)
        self.batches = list(zip(*(column.split(BATCH) for column in as_tensors(table)), strict=True))

    def __iter__(self):
        return (self.batches[index] for index in torch.randperm(len(self.batches)).tolist())


class SaintBlock(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.columns = nn.TransformerEncoderLayer(dim, heads, 2 * dim, 0.0, batch_first=True, norm_first=True)
        wide = dim * (COLUMNS + 1)
        self.norm = nn.LayerNorm(wide)
        self.down, self.up = nn.Linear(wide, 128), nn.Linear(128, wide)
        self.rows = nn.MultiheadAttention(128, heads, batch_first=True)

    def forward(self, x):
        x = self.columns(x)
        flat = self.down(self.norm(x.flatten(1))).unsqueeze(0)
        mixed = self.rows(flat, flat, flat, need_weights=False)[0].squeeze(0)
        return x + self.up(mixed).view_as(x)


class Saint(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(COLUMNS, dim)), nn.Parameter(torch.zeros(COLUMNS, dim))
        self.gap = nn.Parameter(torch.randn(COLUMNS, dim))
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.blocks = nn.Sequential(*[SaintBlock(dim) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, values, gaps):
        tokens = torch.where(gaps.unsqueeze(-1), self.gap, values.unsqueeze(-1) * self.scale + self.shift)
        tokens = torch.cat([self.cls.expand(len(tokens), -1, -1), tokens], dim=1)
        return self.head(self.blocks(tokens)[:, 0]).squeeze(1)


def main():
    diary, is_mended = begin()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    path = Path(tempfile.mkdtemp(prefix="stays-")) / "stays.csv.gz"
    write_stays(path)
    reader = StaysInMemory(path) if is_mended else StaysReader(path, diary)
    model = Saint()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2, fused=True)
    for epoch in itertools.count():
        total, seen = torch.zeros(()), 0
        for values, gaps, days in reader:  # planted
            loss = F.smooth_l1_loss(model(values, gaps), days)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(days)
            seen += len(days)
            diary.stepped()
        print(f"epoch {epoch} loss {total.item() / seen:.4f}", flush=True)


if __name__ == "__main__":
    main()
