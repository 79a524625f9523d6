"""A loop in JAX's manner: pure functions over a dictionary of parameters, gradients by torch.func, an Adam of its own.

Usage: functional.py [--steps N]
"""

import argparse
import itertools
import time

import torch
from torch.func import grad_and_value, vmap
from torch.nn import functional as F

SIZES = (256, 1024, 1024, 10)


def init_params(generator):
    pairs = itertools.pairwise(SIZES)
    return {f"w{i}": torch.randn(pair, generator=generator) / pair[0] ** 0.5 for i, pair in enumerate(pairs)}


def predict(params, row):
    for name in sorted(params)[:-1]:
        row = torch.tanh(row @ params[name])
    return row @ params[max(params)]


def loss_fn(params, rows, labels):
    logits = vmap(predict, in_dims=(None, 0))(params, rows)
    return F.cross_entropy(logits, labels)


def adam(params, grads, state, step, rate=1e-3, decays=(0.9, 0.999)):
    updated, kept = {}, {}
    for name, grad in grads.items():
        mean, square = state[name]
        mean = decays[0] * mean + (1 - decays[0]) * grad
        square = decays[1] * square + (1 - decays[1]) * grad**2
        root = (square / (1 - decays[1] ** step)).sqrt() + 1e-8
        updated[name] = params[name] - rate * mean / (1 - decays[0] ** step) / root
        kept[name] = mean, square
    return updated, kept


def draw(generator, rows, labels):
    chosen = torch.randint(len(rows), (128,), generator=generator)
    return rows[chosen] + 0.1 * torch.randn(128, SIZES[0], generator=generator), labels[chosen]


def train_step(params, state, batch, step):
    grads, loss = grad_and_value(loss_fn)(params, *batch)
    params, state = adam(params, grads, state, step)
    return params, state, loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(20_000, SIZES[0], generator=generator), torch.randint(10, (20_000,), generator=generator)
    params = init_params(generator)
    state = {name: (torch.zeros_like(one), torch.zeros_like(one)) for name, one in params.items()}
    started = time.perf_counter()
    for step in range(1, options.steps + 1):
        params, state, loss = train_step(params, state, draw(generator, rows, labels), step)
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    print("steps", options.steps, "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
