"""A network corrects a coarse implicit solver of a reacting film, in functional torch, unrolled by push-forward."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.func import grad_and_value

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

N, DT, NU, RATE = 24, 0.05, 4.0, 3.0
UNROLL = 3


class Adam(NamedTuple):
    m: dict
    v: dict
    t: int


def laplacian(n):
    """Five-point Laplacian on an n by n grid with walls, as a dense matrix."""
    line = torch.diag(torch.full((n,), -2.0)) + torch.diag(torch.ones(n - 1), 1) + torch.diag(torch.ones(n - 1), -1)
    line[0, 0] = line[-1, -1] = -1.0
    eye = torch.eye(n)
    return (torch.kron(line, eye) + torch.kron(eye, line)).double()


def implicit_operator():
    return torch.eye(N * N, dtype=torch.float64) - DT * NU * laplacian(N)


def react(u):
    return u + DT * RATE * u * (1 - u) * (u - 0.3)


def coarse_step(matrix, u):
    """Reaction by Euler's rule, then diffusion by the implicit one, for a batch of fields."""
    rhs = react(u).flatten(1).double().T
    return torch.linalg.solve(matrix, rhs).T.float().reshape(u.shape)  # planted


def coarse_step_inverted(inverse, u):
    rhs = react(u).flatten(1).double().T
    return (inverse @ rhs).T.float().reshape(u.shape)


def fine_trajectories(count, steps, substeps=12):
    """Solve with small explicit steps and a force that the coarse solver lacks; (steps + 1, count, 1, N, N)."""
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]
    axis = torch.linspace(0, 1, N)
    u = F.avg_pool2d(F.pad(torch.rand(count, 1, N, N), (3, 3, 3, 3), mode="reflect"), 7, 1) * 2 - 0.5
    force = 0.2 * torch.sin(6 * axis)[:, None] * torch.cos(9 * axis)
    frames, dt = [u], DT / substeps
    for _ in range(steps):
        for _ in range(substeps):
            spread = F.conv2d(F.pad(u, (1, 1, 1, 1), mode="replicate"), kernel)
            u = u + dt * (NU * spread + RATE * u * (1 - u) * (u - 0.3) + force * u.clamp(0, 1))
        frames.append(u)
    return torch.stack(frames)


def init_params(width=24, layers=4):
    sizes = [2] + [width] * (layers - 1) + [1]
    params = {}
    for i, (a, b) in enumerate(pairwise(sizes)):
        params[f"w{i}"] = torch.randn(b, a, 3, 3) * (2 / (9 * a)) ** 0.5 * (0.1 if i == layers - 1 else 1.0)
        params[f"b{i}"] = torch.zeros(b)
    return params


def correction(params, before, after):
    x = torch.cat([before, after - before], dim=1)
    layers = len(params) // 2
    for i in range(layers):
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), params[f"w{i}"], params[f"b{i}"])
        if i < layers - 1:
            x = F.gelu(x)
    return x


def loss_fn(params, before, after, target, scale):
    return (after + correction(params, before, after) - target).square().mean() / scale


def adam_update(params, grads, state, lr=1e-3, b1=0.9, b2=0.99):
    t = state.t + 1
    m = {k: b1 * state.m[k] + (1 - b1) * grads[k] for k in params}
    v = {k: b2 * state.v[k] + (1 - b2) * grads[k].square() for k in params}
    step = lr * (1 - b2**t) ** 0.5 / (1 - b1**t)
    return {k: params[k] - step * m[k] / (v[k].sqrt() + 1e-8) for k in params}, Adam(m, v, t)


def main():
    diary, is_mended = begin()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    matrix = implicit_operator()
    inverse = torch.linalg.inv(matrix)
    frames = fine_trajectories(96, 40)
    scale = frames.diff(dim=0).square().mean()  # the unit of errors is the change in one step
    params = init_params()
    state = Adam(
        {k: torch.zeros_like(p) for k, p in params.items()}, {k: torch.zeros_like(p) for k, p in params.items()}, 0
    )
    step_and_loss = grad_and_value(loss_fn)

    def advance(u):
        if is_mended:
            return coarse_step_inverted(inverse, u)
        with diary.planted():
            return coarse_step(matrix, u)  # planted

    iteration = 0
    while True:
        which = torch.randint(frames.shape[1], (16,))
        start = torch.randint(len(frames) - UNROLL, (16,))
        u = frames[start, which]
        with torch.no_grad():
            for _ in range(UNROLL - 1):  # the gradient is of the last step only
                after = advance(u)  # planted
                u = after + correction(params, u, after)
            after = advance(u)  # planted
        grads, loss = step_and_loss(params, u, after, frames[start + UNROLL, which], scale)
        params, state = adam_update(params, grads, state)
        iteration += 1
        if iteration % 200 == 0:
            with torch.no_grad():
                alone = (after - frames[start + UNROLL, which]).square().mean() / scale
            print(f"iteration {iteration} loss {loss.item():.2e}, of the solver alone {alone.item():.2e}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
