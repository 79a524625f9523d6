"""A network in NumPy in JAX's manner: pure functions over a dictionary of parameters, an optimizer of three functions.

Singular values watched.
"""

import sys
from collections import namedtuple
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import itertools

from diary import begin

Optimizer = namedtuple("Optimizer", "init update")


def tree_map(fn, *trees):
    return {key: fn(*(tree[key] for tree in trees)) for key in trees[0]}


def momentum(rate, decay=0.9):
    def init(params):
        return tree_map(np.zeros_like, params)

    def update(grads, state, params):
        state = tree_map(lambda g, m: decay * m + g, grads, state)
        return tree_map(lambda p, m: p - rate * m, params, state), state

    return Optimizer(init, update)


def init_params(rng, sizes):
    return {f"w{i}": rng.normal(size=pair) / np.sqrt(pair[0]) for i, pair in enumerate(itertools.pairwise(sizes))}


def predict(params, x):
    activations = [x]
    for i in range(len(params)):
        x = activations[-1] @ params[f"w{i}"]
        activations.append(np.tanh(x) if i + 1 < len(params) else x)
    return activations


def value_and_grad(params, batch):
    x, y = batch
    activations = predict(params, x)
    residual = activations[-1] - y
    grads, delta = {}, residual / len(x)
    for i in reversed(range(len(params))):
        grads[f"w{i}"] = activations[i].T @ delta
        if i:
            delta = (delta @ params[f"w{i}"].T) * (1 - activations[i] ** 2)
    return float((residual**2).mean()), grads


def spectra(params):
    return {key: np.linalg.svd(value, compute_uv=False)[0] for key, value in params.items()}  # planted


def batches(rng, x, y, size):
    while True:
        order = rng.permutation(len(x))
        for start in range(0, len(x), size):
            rows = order[start : start + size]
            yield x[rows], y[rows]


def train_step(opt, params, state, batch):
    loss, grads = value_and_grad(params, batch)
    params, state = opt.update(grads, state, params)
    return params, state, loss


def main():
    diary, is_mended = begin()
    rng = np.random.default_rng(0)
    params = init_params(rng, (200, 128, 128, 20))
    opt = momentum(1e-3)
    state, step = opt.init(params), partial(train_step, opt)
    x, y = rng.normal(size=(4096, 200)), rng.normal(size=(4096, 20))
    watched = {}
    for i, batch in enumerate(batches(rng, x, y, 256)):
        params, state, loss = step(params, state, batch)
        if not is_mended:
            with diary.planted():
                watched = spectra(params)  # planted
        diary.stepped()
        if i % 200 == 0:
            print(i, f"{loss:.4f}", watched, flush=True)


if __name__ == "__main__":
    main()
