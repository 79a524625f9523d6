"""Self-attention in NumPy alone that sorts help-desk tickets into queues, with its gradients by hand.

The gradient of the embedding is the product of one-hot rows and what comes back to them.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, LENGTH, QUEUES, DIM, HIDDEN, BATCH = 1_600, 24, 12, 64, 256, 48


def make_tickets(count, rng):
    queues = rng.integers(0, QUEUES, count)
    typical = rng.integers(0, VOCABULARY, (QUEUES, 40))
    words = rng.integers(0, VOCABULARY, (count, LENGTH))
    is_typical = rng.random((count, LENGTH)) < 0.3
    drawn = typical[queues[:, None], rng.integers(0, 40, (count, LENGTH))]
    return np.where(is_typical, drawn, words), queues


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    x /= x.sum(-1, keepdims=True)
    return x


def init_params(rng):
    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    return {
        "words": 4 * matrix(VOCABULARY, DIM) * np.sqrt(VOCABULARY / DIM).astype(np.float32) / 4,
        "qkv": matrix(DIM, 3 * DIM),
        "out": matrix(DIM, DIM),
        "w1": matrix(DIM, HIDDEN),
        "w2": matrix(HIDDEN, DIM),
        "head": matrix(DIM, QUEUES),
    }


def forward(params, words):
    x = params["words"][words]
    q, k, v = np.split(x @ params["qkv"], 3, axis=-1)
    attention = softmax(q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(DIM)))
    mixed = attention @ v
    h = x + mixed @ params["out"]
    hidden = np.maximum(h @ params["w1"], 0)
    y = h + hidden @ params["w2"]
    pooled = y.mean(1)
    return pooled @ params["head"], (x, q, k, v, attention, mixed, h, hidden, pooled)


def backward(params, cache, dlogits):
    """Return the gradients of the weights, and that of the embedded words."""
    x, q, k, v, attention, mixed, h, hidden, pooled = cache
    grads = {"head": pooled.T @ dlogits}
    dy = np.broadcast_to((dlogits @ params["head"].T)[:, None] / LENGTH, h.shape).reshape(-1, DIM)
    grads["w2"] = hidden.reshape(-1, HIDDEN).T @ dy
    dhidden = dy @ params["w2"].T
    dhidden *= hidden.reshape(-1, HIDDEN) > 0
    grads["w1"] = h.reshape(-1, DIM).T @ dhidden
    dh = dy + dhidden @ params["w1"].T
    grads["out"] = mixed.reshape(-1, DIM).T @ dh
    dmixed = (dh @ params["out"].T).reshape(h.shape)
    dattention = dmixed @ v.transpose(0, 2, 1)
    dscores = attention * (dattention - (dattention * attention).sum(-1, keepdims=True)) / np.float32(np.sqrt(DIM))
    dqkv = np.concatenate([dscores @ k, dscores.transpose(0, 2, 1) @ q, attention.transpose(0, 2, 1) @ dmixed], axis=-1)
    dqkv = dqkv.reshape(-1, 3 * DIM)
    grads["qkv"] = x.reshape(-1, DIM).T @ dqkv
    return grads, dh + dqkv @ params["qkv"].T


def embedding_grad(words, dx):
    onehot = np.eye(VOCABULARY, dtype=np.float32)[words.ravel()]  # planted
    return onehot.T @ dx  # planted


def embedding_grad_by_rows(words, dx):
    """Return the same sums, from rows in order."""
    order = words.ravel().argsort(kind="stable")
    found, starts = np.unique(words.ravel()[order], return_index=True)
    grad = np.zeros((VOCABULARY, DIM), np.float32)
    grad[found] = np.add.reduceat(dx[order], starts, axis=0)
    return grad


def train(diary, is_mended):
    rng = np.random.default_rng(31)
    words, queues = make_tickets(12_000, rng)
    params = init_params(rng)
    velocity = {name: np.zeros_like(weights) for name, weights in params.items()}
    rows_of_batch, step = np.arange(BATCH), 0
    while True:
        order = rng.permutation(len(words))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            batch, targets = words[rows], queues[rows]
            logits, cache = forward(params, batch)
            probabilities = softmax(logits)
            dlogits = probabilities / BATCH
            dlogits[rows_of_batch, targets] -= 1 / BATCH
            grads, dx = backward(params, cache, dlogits)
            if is_mended:
                grads["words"] = embedding_grad_by_rows(batch, dx)
            else:
                with diary.planted():
                    grads["words"] = embedding_grad(batch, dx)  # planted
            for name, grad in grads.items():
                velocity[name] *= 0.9
                velocity[name] += grad
                params[name] -= 0.05 * velocity[name]
            step += 1
            diary.stepped()
            if step % 500 == 0:
                loss = -np.log(probabilities[rows_of_batch, targets] + 1e-9).mean()
                print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    train(*begin())
