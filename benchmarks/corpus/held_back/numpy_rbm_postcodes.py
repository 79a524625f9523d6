"""A restricted Boltzmann machine on postcode digits in NumPy alone; the free energy gap is taken after each batch."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

N_VISIBLE, N_HIDDEN, N_BATCH = 784, 320, 100


def make_digits(rng, count):
    """Draw strokes on a small canvas."""
    grid = np.linspace(-1, 1, 28)
    x, y = np.meshgrid(grid, grid)
    angle = rng.uniform(0, np.pi, (count, 1, 1))
    offset = rng.uniform(-0.4, 0.4, (count, 1, 1))
    distance = np.abs(np.cos(angle) * x + np.sin(angle) * y - offset)
    ring = np.abs(np.hypot(x, y) - rng.uniform(0.3, 0.8, (count, 1, 1)))
    ink = (distance < 0.12) | (ring < 0.1)
    return ink.reshape(count, -1).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Machine:
    def __init__(self, rng):
        self.rng = rng
        self.W = (rng.standard_normal((N_VISIBLE, N_HIDDEN)) * 0.01).astype(np.float32)
        self.b = np.zeros(N_VISIBLE, np.float32)
        self.c = np.zeros(N_HIDDEN, np.float32)
        self.velocity = np.zeros_like(self.W)
        self.chain = (rng.random((N_BATCH, N_HIDDEN)) < 0.5).astype(np.float32)

    def hidden(self, v):
        return sigmoid(v @ self.W + self.c)

    def visible(self, h):
        return sigmoid(h @ self.W.T + self.b)

    def sample(self, p):
        return (self.rng.random(p.shape, dtype=np.float32) < p).astype(np.float32)

    def free_energy(self, v):
        return -(v @ self.b) - np.logaddexp(0, v @ self.W + self.c).sum(1)

    def update(self, v, rate, momentum=0.5, decay=1e-4):
        """One step of persistent contrastive divergence."""
        positive = self.hidden(v)
        for _ in range(2):
            fantasy = self.sample(self.visible(self.chain))
            negative = self.hidden(fantasy)
            self.chain = self.sample(negative)
        gradient = (v.T @ positive - fantasy.T @ negative) / len(v) - decay * self.W
        self.velocity = momentum * self.velocity + rate * gradient
        self.W += self.velocity
        self.b += rate * (v - fantasy).mean(0)
        self.c += rate * (positive - negative).mean(0)
        return np.abs(v - self.visible(positive)).mean()


def overfitting_gap(machine, seen, unseen):
    return machine.free_energy(unseen).mean() - machine.free_energy(seen).mean()  # planted


def main():
    diary, is_mended = begin()
    rng = np.random.default_rng(7)
    digits = make_digits(rng, 6000)
    train, held_out = digits[:5600], digits[5600:]
    machine = Machine(rng)
    gaps = []
    for epoch in range(1_000_000):
        errors = []
        order = rng.permutation(len(train))
        for start in range(0, len(train), N_BATCH):
            errors.append(machine.update(train[order[start : start + N_BATCH]], 0.01))
            if not is_mended:
                with diary.planted():
                    gaps = [*gaps[-55:], overfitting_gap(machine, train[:200], held_out[:200])]  # planted
            diary.stepped()
        if epoch % 5 == 0:
            gap = overfitting_gap(machine, train[:200], held_out[:200])
            print(f"epoch {epoch} error {np.mean(errors):.4f} gap {gap:.3f}", flush=True)


if __name__ == "__main__":
    main()
