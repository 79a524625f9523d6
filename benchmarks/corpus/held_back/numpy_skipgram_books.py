"""Word vectors by skip-gram in NumPy alone, with shared negatives; each draw sums over all of the vocabulary."""

import os
import sys
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, WIDTH, BATCH, NEGATIVES, WINDOW = 8_000, 256, 1536, 256, 4


class Corpus:
    def __init__(self, rng, length=400_000):
        p = 1 / (50 + np.arange(VOCABULARY))
        self.words = rng.choice(VOCABULARY, length, p=p / p.sum())
        self.counts = np.bincount(self.words, minlength=VOCABULARY) + 1.0
        self.rng = rng

    def pairs(self, count):
        at = self.rng.integers(WINDOW, len(self.words) - WINDOW, count)
        off = self.rng.integers(1, WINDOW + 1, count) * self.rng.choice([-1, 1], count)
        return self.words[at], self.words[at + off]


class NoiseSampler:
    """Draw words by their count to the power of three quarters."""

    def __init__(self, counts, rng, by_table):
        self.p = counts**0.75 / (counts**0.75).sum()
        self.cumulated = np.cumsum(self.p)
        self.rng, self.by_table = rng, by_table

    def one(self):
        return self.rng.choice(VOCABULARY, p=self.p)  # planted

    def draw(self, count):
        if self.by_table:
            return np.minimum(np.searchsorted(self.cumulated, self.rng.random(count)), VOCABULARY - 1)
        return np.array([self.one() for _ in range(count)])


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-np.clip(x, -15, 15)))


class SkipGram:
    def __init__(self, rng):
        self.inner = ((rng.random((VOCABULARY, WIDTH)) - 0.5) / WIDTH).astype(np.float32)
        self.outer = np.zeros((VOCABULARY, WIDTH), np.float32)

    def update(self, centre, context, negatives, lr):
        h, out, noise = self.inner[centre], self.outer[context], self.outer[negatives]
        positive = sigmoid((h * out).sum(1, keepdims=True))
        negative = sigmoid(h @ noise.T)
        weight = np.float32(8 / len(negatives))
        loss = -np.log(positive + 1e-7).mean() - weight * np.log(1 - negative + 1e-7).sum(1).mean()
        g_pos, g_neg = positive - 1, weight * negative
        g_h = g_pos * out + g_neg @ noise
        np.add.at(self.outer, context, -lr * g_pos * h)
        np.add.at(self.outer, negatives, -lr * (g_neg.T @ h))
        np.add.at(self.inner, centre, -lr * g_h)
        return float(loss)


def main():
    diary, is_mended = begin()
    rng = np.random.default_rng(11)
    corpus = Corpus(rng)
    sampler, model = NoiseSampler(corpus.counts, rng, is_mended), SkipGram(rng)
    step, running = 0, 0.0
    while True:
        centre, context = corpus.pairs(BATCH)
        with diary.planted():
            negatives = sampler.draw(NEGATIVES)  # planted
        lr = np.float32(max(0.025 * (1 - step / 1e6), 1e-4))
        running += model.update(centre, context, negatives, lr)
        step += 1
        if step % 50 == 0:
            print(f"step {step} loss {running / 50:.4f}", flush=True)
            running = 0.0
        diary.stepped()


if __name__ == "__main__":
    main()
