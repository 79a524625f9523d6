"""Gradient boosting of trees in NumPy with histograms of binned columns, a tree per step.

Nothing is planted: the loop over columns is over one `bincount` each, of many thousand rows.
"""

import os
import sys
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin  # noqa: E402

ROWS, HELD_OUT, COLUMNS, BINS, DEPTH, TREES = 50_000, 10_000, 20, 64, 4, 300


def table(rng):
    """Columns of several kinds and a label that depends on some of them together."""
    x = rng.normal(size=(ROWS + HELD_OUT, COLUMNS)).astype(np.float32)
    x[:, ::3] = np.exp(x[:, ::3])
    x[:, 1::4] = np.round(2 * x[:, 1::4])
    logit = x[:, 0] * (x[:, 1] > 0) - np.abs(x[:, 2]) + np.sin(2 * x[:, 4]) + 0.5 * x[:, 5] * x[:, 7]
    return x, (logit + rng.logistic(size=len(x)) > 0).astype(np.float64)


def binned(x):
    """Bins of equal counts; by columns, and wide enough to add the node's offset without a cast."""
    edges = np.quantile(x[:ROWS], np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
    return np.stack([np.searchsorted(edges[:, c], x[:, c]) for c in range(COLUMNS)]).astype(np.int64)


class Tree:
    """Grown level by level: for each node the column and bin that it splits at."""

    def __init__(self, l2=1.0, least=20.0):
        self.l2, self.least = l2, least
        self.columns, self.cuts = np.zeros(2**DEPTH - 1, np.int64), np.full(2**DEPTH - 1, BINS)
        self.values = np.zeros(2**DEPTH)

    def score(self, g, h):
        return g * g / (h + self.l2)

    def best_splits(self, bins, node, nodes, g, h, code):
        best = np.zeros(nodes), np.zeros(nodes, np.int64), np.full(nodes, BINS)
        offset = node * BINS
        for column in range(COLUMNS):
            np.add(offset, bins[column], out=code)
            sums_g = np.bincount(code, g, nodes * BINS).reshape(nodes, BINS).cumsum(1)
            sums_h = np.bincount(code, h, nodes * BINS).reshape(nodes, BINS).cumsum(1)
            total_g, total_h = sums_g[:, -1:], sums_h[:, -1:]
            gain = self.score(sums_g, sums_h) + self.score(total_g - sums_g, total_h - sums_h)
            gain -= self.score(total_g, total_h)
            gain[(sums_h < self.least) | (total_h - sums_h < self.least)] = 0
            cut = gain.argmax(1)
            top = gain[np.arange(nodes), cut]
            better = top > best[0]
            for kept, new in zip(best, (top, column, cut), strict=True):
                kept[better] = new if np.isscalar(new) else new[better]
        return best

    def fit(self, bins, g, h):
        node, code, everyone = np.zeros(len(g), np.int64), np.empty(len(g), np.int64), np.arange(len(g))
        for level in range(DEPTH):
            nodes, first = 2**level, 2**level - 1
            _, columns, cuts = self.best_splits(bins, node, nodes, g, h, code)
            self.columns[first : first + nodes], self.cuts[first : first + nodes] = columns, cuts
            node = 2 * node + (bins[columns[node], everyone] > cuts[node])
        self.values = -np.bincount(node, g, 2**DEPTH) / (np.bincount(node, h, 2**DEPTH) + self.l2)
        return self.values[node]

    def predict(self, bins):
        node, everyone = np.zeros(bins.shape[1], np.int64), np.arange(bins.shape[1])
        for level in range(DEPTH):
            place = node + 2**level - 1
            node = 2 * node + (bins[self.columns[place], everyone] > self.cuts[place])
        return self.values[node]


def log_loss(y, margin):
    return float(np.mean(np.logaddexp(0, margin) - y * margin))


def boost(bins, y, diary, rate=0.1, log_every=20):
    margin, held_margin = np.zeros(ROWS), np.zeros(HELD_OUT)
    train_bins, held_bins = np.ascontiguousarray(bins[:, :ROWS]), np.ascontiguousarray(bins[:, ROWS:])
    for number in range(TREES):
        odds = 1 / (1 + np.exp(-margin))
        tree = Tree()
        margin += rate * tree.fit(train_bins, odds - y[:ROWS], odds * (1 - odds))
        held_margin += rate * tree.predict(held_bins)
        diary.stepped()
        if number % log_every == 0:
            losses = log_loss(y[:ROWS], margin), log_loss(y[ROWS:], held_margin)
            print("[{}]\ttrain {:.5f}\tvalid {:.5f}".format(number, *losses), flush=True)


def main(diary):
    run = 0
    while True:
        x, y = table(np.random.default_rng(run % 3))
        boost(binned(x), y, diary)
        run += 1


if __name__ == "__main__":
    main(begin()[0])
