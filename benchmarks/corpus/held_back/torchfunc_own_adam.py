"""torch.func over a dictionary of parameters, with Adam as three functions and batches from a plain generator.

Nothing is planted.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

net = nn.Sequential(
    nn.Conv1d(4, 32, 5), nn.ReLU(), nn.Conv1d(32, 32, 5), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 56, 6)
)


def loss_fn(params, x, y):
    return nn.functional.cross_entropy(functional_call(net, params, (x,)), y)


def adam_init(params):
    return {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in params.items()}


def adam_update(params, grads, state, t, rate=1e-3):
    new_params, new_state = {}, {}
    for name, p in params.items():
        m, v = state[name]
        m, v = 0.9 * m + 0.1 * grads[name], 0.999 * v + 0.001 * grads[name].square()
        new_params[name] = p - rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        new_state[name] = m, v
    return new_params, new_state


def stream(x, y, size):
    while True:
        order = torch.randperm(len(x))
        for rows in order.split(size):
            yield x[rows], y[rows]


def fit(diary):
    torch.manual_seed(8)
    torch.set_num_threads(1)
    params = {name: p.detach().clone() for name, p in net.named_parameters()}
    state = adam_init(params)
    value_grad = grad_and_value(loss_fn)
    for t, (x, y) in enumerate(stream(torch.randn(2048, 4, 64), torch.randint(6, (2048,)), 64), start=1):
        grads, loss = value_grad(params, x, y)
        params, state = adam_update(params, grads, state, t)
        if t % 250 == 0:
            print(f"t={t} loss={loss:.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    fit(begin()[0])
