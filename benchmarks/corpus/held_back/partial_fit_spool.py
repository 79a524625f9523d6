"""Learning from a stream in NumPy with `partial_fit`: its reader sleeps before it looks for the next chunk.

A thread stands for the machine that writes the chunks; it is always some ahead.
"""

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin  # noqa: E402

FEATURES, CLASSES, ROWS, AHEAD = 128, 6, 512, 3
POLL_S = 0.012


class ChunkWriter(threading.Thread):
    """Writes chunks of rows to the spool; the centers of the classes drift."""

    def __init__(self, spool):
        super().__init__(daemon=True)
        self.spool, self.rng = spool, np.random.default_rng(1)
        self.room = threading.Semaphore(AHEAD)
        self.centers = self.rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
        self.rows = self.rng.normal(size=(8, ROWS, FEATURES)).astype(np.float32)

    def run(self):
        number = 0
        while True:
            self.room.acquire()
            labels = self.rng.integers(CLASSES, size=ROWS)
            rows = self.centers[labels] + 2.0 * self.rows[number % len(self.rows)]
            part = self.spool / f"{number:09d}.part"
            with part.open("wb") as file:
                np.savez(file, x=rows, y=labels)
            part.rename(part.with_suffix(".npz"))
            self.centers += 0.001 * self.rng.normal(size=self.centers.shape).astype(np.float32)
            number += 1


class SpoolReader:
    def __init__(self, spool, writer, diary, sleeps_first):
        self.spool, self.writer, self.diary, self.sleeps_first = spool, writer, diary, sleeps_first

    def waiting(self):
        return sorted(self.spool.glob("*.npz"))

    def next_path(self):
        if not self.sleeps_first:
            while not (paths := self.waiting()):
                time.sleep(0.001)
            return paths[0]
        while True:
            with self.diary.planted():
                time.sleep(POLL_S)  # planted
            if paths := self.waiting():
                return paths[0]

    def __iter__(self):
        while True:
            path = self.next_path()  # planted
            with np.load(path) as chunk:
                x, y = chunk["x"], chunk["y"]
            path.unlink()
            self.writer.room.release()
            yield x, y


class StandardScaler:
    """Running moments, merged chunk by chunk."""

    def __init__(self):
        self.count, self.mean, self.m2 = 0, np.zeros(FEATURES), np.zeros(FEATURES)

    def partial_fit(self, x):
        mean, count = x.mean(0), self.count + len(x)
        delta = mean - self.mean
        self.m2 += ((x - mean) ** 2).sum(0) + delta**2 * self.count * len(x) / count
        self.mean += delta * len(x) / count
        self.count = count
        return self

    def transform(self, x):
        return ((x - self.mean) / np.sqrt(self.m2 / self.count + 1e-8)).astype(np.float32)


class MLPClassifier:
    """One hidden layer, Adam, a few passes over each chunk."""

    def __init__(self, hidden=768, lr=1e-3, batch=64, passes=2):
        rng = np.random.default_rng(0)
        self.rng, self.lr, self.batch, self.passes, self.t = rng, lr, batch, passes, 0
        shapes = {"w1": (FEATURES, hidden), "b1": (hidden,), "w2": (hidden, CLASSES), "b2": (CLASSES,)}
        self.p = {key: (0.05 * rng.normal(size=shape)).astype(np.float32) for key, shape in shapes.items()}
        self.m = {key: np.zeros_like(value) for key, value in self.p.items()}
        self.v = {key: np.zeros_like(value) for key, value in self.p.items()}

    def forward(self, x):
        hidden = np.maximum(0, x @ self.p["w1"] + self.p["b1"])
        logits = hidden @ self.p["w2"] + self.p["b2"]
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return hidden, odds / odds.sum(1, keepdims=True)

    def gradients(self, x, y):
        hidden, odds = self.forward(x)
        odds[np.arange(len(y)), y] -= 1
        odds /= len(y)
        back = (odds @ self.p["w2"].T) * (hidden > 0)
        return {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ odds, "b2": odds.sum(0)}

    def adam(self, gradients):
        self.t += 1
        rate = self.lr * np.sqrt(1 - 0.999**self.t) / (1 - 0.9**self.t)
        for key, gradient in gradients.items():
            self.m[key] += 0.1 * (gradient - self.m[key])
            self.v[key] += 0.001 * (gradient**2 - self.v[key])
            self.p[key] -= rate * self.m[key] / (np.sqrt(self.v[key]) + 1e-8)

    def partial_fit(self, x, y):
        for _ in range(self.passes):
            order = self.rng.permutation(len(x))
            for begun in range(0, len(x), self.batch):
                rows = order[begun : begun + self.batch]
                self.adam(self.gradients(x[rows], y[rows]))
        return self

    def score(self, x, y):
        return float((self.forward(x)[1].argmax(1) == y).mean())


def main(diary, is_mended):
    spool = Path(tempfile.mkdtemp(prefix="partial_fit_spool_"))
    writer = ChunkWriter(spool)
    writer.start()
    scaler, classifier, progressive = StandardScaler(), MLPClassifier(), 0.0
    reader = SpoolReader(spool, writer, diary, sleeps_first=not is_mended)
    for number, (x, y) in enumerate(reader):  # planted
        x = scaler.partial_fit(x).transform(x)
        progressive += 0.05 * (classifier.score(x, y) - progressive)  # before it learns from them
        classifier.partial_fit(x, y)
        diary.stepped()
        if number % 100 == 0:
            print(f"chunk {number}: progressive accuracy {progressive:.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*begin())
