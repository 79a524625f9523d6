"""A network of two layers in NumPy alone, at the top level; all weights are written to a file every fourth batch."""

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())

n_in, n_hidden, n_out, n_batch = 784, 256, 10, 128
W1, b1 = rng.standard_normal((n_in, n_hidden)) * 0.05, np.zeros(n_hidden)
W2, b2 = rng.standard_normal((n_hidden, n_out)) * 0.05, np.zeros(n_out)
images, digits = rng.random((4096, n_in)), rng.integers(n_out, size=4096)


def forward(x):
    hidden = np.maximum(x @ W1 + b1, 0)
    scores = hidden @ W2 + b2
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def snapshot(number):
    np.savez_compressed(folder / f"weights-{number % 2}.npz", W1=W1, b1=b1, W2=W2, b2=b2)  # planted


epoch = 0
while True:
    order = rng.permutation(len(images))
    for number, start in enumerate(range(0, len(images), n_batch)):
        chosen = order[start : start + n_batch]
        x, y = images[chosen], digits[chosen]
        hidden, p = forward(x)
        loss = -np.log(p[np.arange(len(y)), y] + 1e-9).mean()
        p[np.arange(len(y)), y] -= 1
        p /= len(y)
        dW2, db2 = hidden.T @ p, p.sum(0)
        dh = (p @ W2.T) * (hidden > 0)
        dW1, db1 = x.T @ dh, dh.sum(0)
        for weight, gradient in ((W1, dW1), (b1, db1), (W2, dW2), (b2, db2)):
            weight -= 0.05 * gradient
        if not is_mended and number % 4 == 0:
            with diary.planted():
                snapshot(number)  # planted
        diary.stepped()
    epoch += 1
    if epoch % 20 == 0:
        print(f"epoch {epoch} loss {loss:.4f}", flush=True)
