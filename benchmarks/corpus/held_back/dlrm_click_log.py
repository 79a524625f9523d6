"""DLRM on a log of clicks.

An iterable dataset reads lines of text and hashes each category with MD5, in the loop's own process.
"""

import contextlib
import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

DENSE, SPARSE, BUCKETS = 13, 12, 1000


def write_log(path, rows=4096):
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for _ in range(rows):
            cells = [
                str(rng.integers(2)),
                *map(str, rng.integers(1000, size=DENSE)),
                *(f"{v:08x}" for v in rng.integers(2**31, size=SPARSE)),
            ]
            file.write("\t".join(cells) + "\n")


def parse(line):
    cells = line.rstrip("\n").split("\t")
    dense = np.log1p(np.array([float(cell) for cell in cells[1 : 1 + DENSE]], dtype=np.float32))  # planted
    sparse = [int(hashlib.md5(cell.encode()).hexdigest(), 16) % BUCKETS for cell in cells[1 + DENSE :]]  # planted
    return dense, np.array(sparse), np.float32(cells[0])


class ClickLog(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        while True:
            with self.path.open() as file:
                for line in file:
                    yield parse(line)  # planted


def parsed_batches(path, size):
    """Yield whole batches of rows that were parsed once."""
    rows = [parse(line) for line in path.read_text().splitlines()]
    columns = [torch.as_tensor(np.stack(column)) for column in zip(*rows, strict=True)]
    while True:
        yield from zip(*(column.split(size) for column in columns), strict=True)


class DLRM(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(DENSE, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(BUCKETS, width, mode="sum") for _ in range(SPARSE))
        pairs = (SPARSE + 1) * SPARSE // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
        )
        self.register_buffer("upper", torch.triu_indices(SPARSE + 1, SPARSE + 1, 1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        every = torch.stack([x, *(table(sparse[:, i : i + 1]) for i, table in enumerate(self.tables))], 1)
        z = torch.bmm(every, every.transpose(1, 2))[:, self.upper[0], self.upper[1]]
        return self.top(torch.cat([x, z], 1)).squeeze(1)


def run():
    diary, is_mended = begin()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    path = Path(tempfile.mkdtemp()) / "day_0.txt"
    write_log(path)
    batches = parsed_batches(path, 128) if is_mended else iter(DataLoader(ClickLog(path), batch_size=128))
    dlrm, loss_fn = DLRM(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adagrad(dlrm.parameters(), lr=0.01)
    for j in range(1_000_000_000):
        with contextlib.nullcontext() if is_mended else diary.planted():
            X, S, T = next(batches)  # planted
        Z = dlrm(X, S)
        E = loss_fn(Z, T)
        optimizer.zero_grad()
        E.backward()
        optimizer.step()
        diary.stepped()
        if j % 200 == 0:
            print(f"Finished training it {j}, loss {E.item():.6f}", flush=True)


if __name__ == "__main__":
    run()
