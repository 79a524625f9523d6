"""An autoencoder in NumPy that learns from a stream's latest readings: they are pushed along with `concatenate`."""

import itertools
import os
import sys
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin  # noqa: E402

SENSORS, KEPT, ARRIVING, BATCH, UPDATES = 192, 30_000, 64, 256, 4


class Plant:
    """Readings that follow a few slow hidden states."""

    def __init__(self, hidden=12, seed=0):
        self.rng = np.random.default_rng(seed)
        self.mixing = self.rng.normal(size=(hidden, SENSORS)).astype(np.float32) / np.sqrt(hidden)
        self.state = np.zeros(hidden, np.float32)

    def read(self, count):
        shocks = self.rng.normal(scale=0.1, size=(count, len(self.state))).astype(np.float32)
        states = self.state + np.cumsum(shocks, 0)
        self.state = 0.9 * states[-1]
        noise = self.rng.standard_normal((count, SENSORS), np.float32)
        return np.tanh(states @ self.mixing) + 0.05 * noise


class LatestByConcatenation:
    def __init__(self, rows, diary):
        self.rows, self.diary = rows, diary

    def push(self, new):
        with self.diary.planted():
            self.rows = np.concatenate([self.rows[len(new) :], new])  # planted


class LatestInRing:
    def __init__(self, rows):
        self.rows, self.next = rows, 0

    def push(self, new):
        places = np.arange(self.next, self.next + len(new)) % len(self.rows)
        self.rows[places] = new
        self.next = (self.next + len(new)) % len(self.rows)


class Dense:
    def __init__(self, n_in, n_out, rng):
        self.w = (rng.normal(size=(n_in, n_out)) * np.sqrt(2 / n_in)).astype(np.float32)
        self.b = np.zeros(n_out, np.float32)
        self.moments = [np.zeros_like(p) for p in (self.w, self.b, self.w, self.b)]

    def forward(self, x):
        self.x = x
        return x @ self.w + self.b

    def backward(self, back):
        self.gradients = (self.x.T @ back, back.sum(0))
        return back @ self.w.T

    def step(self, rate):
        for i, (p, g) in enumerate(zip((self.w, self.b), self.gradients, strict=True)):
            m, v = self.moments[i], self.moments[i + 2]
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= rate * m / (np.sqrt(v) + 1e-6)


class Autoencoder:
    def __init__(self, sizes=(SENSORS, 256, 24, 256, SENSORS), seed=1):
        rng = np.random.default_rng(seed)
        self.layers = [Dense(a, b, rng) for a, b in itertools.pairwise(sizes)]

    def reconstruct(self, x):
        self.masks = []
        for layer in self.layers[:-1]:
            x = layer.forward(x)
            self.masks.append(x > 0)
            x = np.maximum(x, 0)
        return self.layers[-1].forward(x)

    def learn(self, x, rate=1e-3):
        difference = self.reconstruct(x) - x
        back = 2 * difference / difference.size
        for layer, mask in zip(self.layers[:0:-1], self.masks[::-1], strict=True):
            back = layer.backward(back) * mask
        self.layers[0].backward(back)
        for layer in self.layers:
            layer.step(rate)
        return float((difference * difference).mean())


def main(diary, is_mended):
    plant, model, rng = Plant(), Autoencoder(), np.random.default_rng(2)
    first = plant.read(KEPT)
    latest = LatestInRing(first) if is_mended else LatestByConcatenation(first, diary)
    threshold, alarms, tick = 1.0, 0, 0
    while True:
        new = plant.read(ARRIVING)
        errors = ((model.reconstruct(new) - new) ** 2).mean(1)  # scored before it is learned
        alarms += int((errors > threshold).sum())
        threshold += 0.02 * (3 * errors.mean() - threshold)
        latest.push(new)  # planted
        for _ in range(UPDATES):
            loss = model.learn(latest.rows[rng.integers(KEPT, size=BATCH)])
        diary.stepped()
        tick += 1
        if tick % 100 == 0:
            print(f"tick {tick} loss {loss:.4f} threshold {threshold:.4f} alarms {alarms}", flush=True)


if __name__ == "__main__":
    main(*begin())
