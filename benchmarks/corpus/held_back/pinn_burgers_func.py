"""A network that solves the equation of Burgers, with derivatives by torch.func over single points.

Nothing is planted: the points are drawn anew each step as they should be, and second derivatives cost what they cost.
"""

import itertools
import math
import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch.func import grad_and_value, jvp, vmap

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VISCOSITY = 0.01 / math.pi


def init_params(sizes, generator):
    params = []
    for n_in, n_out in itertools.pairwise(sizes):
        bound = math.sqrt(6 / (n_in + n_out))
        params.append((torch.rand(n_out, n_in, generator=generator) * 2 * bound - bound, torch.zeros(n_out)))
    return params


def u(params, t, x):
    """Return the solution at one point."""
    h = torch.stack([t, x])
    for weight, bias in params[:-1]:
        h = torch.tanh(weight @ h + bias)
    weight, bias = params[-1]
    return (weight @ h + bias)[0]


def residual(params, t, x):
    """How far u_t + u u_x - v u_xx is from nothing at one point."""
    one, zero = torch.ones(()), torch.zeros(())

    def slope(x):
        return jvp(lambda x: u(params, t, x), (x,), (one,))

    (value, u_x), (_, u_xx) = jvp(slope, (x,), (one,))
    _, u_t = jvp(lambda t, x: u(params, t, x), (t, x), (one, zero))
    return u_t + value * u_x - VISCOSITY * u_xx


def loss_fn(params, inner, start, walls):
    inside = vmap(residual, (None, 0, 0))(params, *inner)
    at_start = vmap(u, (None, 0, 0))(params, torch.zeros_like(start), start) + torch.sin(math.pi * start)
    at_walls = vmap(u, (None, 0, 0))(params, *walls)
    return inside.square().mean() + 10 * (at_start.square().mean() + at_walls.square().mean())


def draw_points(generator, inside=512, edge=64):
    t, x = torch.rand(2, inside, generator=generator)
    start = torch.rand(edge, generator=generator) * 2 - 1
    wall = torch.randint(2, (edge,), generator=generator).float() * 2 - 1
    return (t, 2 * x - 1), start, (torch.rand(edge, generator=generator), wall)


class Adam:
    """Adam over a flat list of tensors, by the foreach operators."""

    def __init__(self, tensors, lr):
        self.tensors, self.lr, self.t = tensors, lr, 0
        self.first, self.second = ([torch.zeros_like(x) for x in tensors] for _ in range(2))

    def step(self, grads):
        self.t += 1
        torch._foreach_lerp_(self.first, grads, 0.1)
        torch._foreach_mul_(self.second, 0.999)
        torch._foreach_addcmul_(self.second, grads, grads, 0.001)
        root = torch._foreach_sqrt(self.second)
        torch._foreach_div_(root, math.sqrt(1 - 0.999**self.t))
        torch._foreach_add_(root, 1e-8)
        torch._foreach_addcdiv_(self.tensors, self.first, root, -self.lr / (1 - 0.9**self.t))


def flatten(params):
    return [tensor for pair in params for tensor in pair]


def show(step, loss, params):
    """Print the loss and the front's steepness at half time."""
    x = torch.linspace(-1, 1, 41)
    profile = vmap(u, (None, None, 0))(params, torch.tensor(0.5), x)
    print(f"step {step} loss {loss.item():.5f} steepest {profile.diff().abs().max().item() * 20:.2f}", flush=True)


if __name__ == "__main__":
    diary, _ = begin()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(70)
    params = init_params([2, 128, 128, 128, 1], generator)
    adam, differentiate, step = Adam(flatten(params), 1e-3), grad_and_value(loss_fn), 0
    while True:
        grads, loss = differentiate(params, *draw_points(generator))
        adam.step(flatten(grads))
        diary.stepped()
        step += 1
        if step % 100 == 0:
            show(step, loss, params)
