"""First-order meta-learning on curves: an inner loop adapts to a task, an outer loop learns the start."""

import copy
import itertools
import math
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

EPISODES, TASKS_PER_STEP, INNER_STEPS, INNER_LR = 64, 6, 4, 0.02


@dataclass
class Curve:
    """A task: points for the inner loop (support) and for the outer loop (query)."""

    name: str
    support: list = field(default_factory=list)
    query: list = field(default_factory=list)

    def tensors(self):
        return torch.tensor(self.support), torch.tensor(self.query)  # planted


def make_curve(index):
    amplitude, phase = random.uniform(0.5, 5.0), random.uniform(0, math.pi)

    def points(count):
        xs = [random.uniform(-5, 5) for _ in range(count)]
        return [[x, amplitude * math.sin(x - phase)] for x in xs]

    return Curve(f"curve-{index}", points(260), points(260))


class CurvePool:
    def __init__(self, diary, is_mended):
        self.diary = diary
        self.curves = [make_curve(index) for index in range(EPISODES)]
        self.ready = [curve.tensors() for curve in self.curves] if is_mended else None

    def sample(self):
        index = random.randrange(EPISODES)
        if self.ready is not None:
            return self.ready[index]
        with self.diary.planted():
            return self.borrow(index).tensors()  # planted

    def borrow(self, index):
        """Return a curve that the caller may change."""
        return copy.deepcopy(self.curves[index])  # planted


def initial_weights(sizes=(1, 80, 80, 1)):
    weights = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        weights.append((torch.randn(fan_out, fan_in) * math.sqrt(2 / fan_in)).requires_grad_())
        weights.append(torch.zeros(fan_out, requires_grad=True))
    return weights


def forward(x, weights):
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for weight, bias in layers[:-1]:
        x = F.linear(x, weight, bias).relu()
    return F.linear(x, *layers[-1])


def curve_loss(points, weights):
    return F.mse_loss(forward(points[:, :1], weights), points[:, 1:])


def adapt(weights, support):
    fast = weights
    for _ in range(INNER_STEPS):
        gradients = torch.autograd.grad(curve_loss(support, fast), fast)
        fast = [weight - INNER_LR * gradient for weight, gradient in zip(fast, gradients, strict=True)]
    return fast


def outer_step(weights, optimizer, pool):
    optimizer.zero_grad()
    total = 0.0
    for _ in range(TASKS_PER_STEP):
        support, query = pool.sample()  # planted
        loss = curve_loss(query, adapt(weights, support)) / TASKS_PER_STEP
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(weights, 10.0)
    optimizer.step()
    return total


def main():
    diary, is_mended = begin()
    torch.manual_seed(8)
    random.seed(8)
    torch.set_num_threads(1)
    pool = CurvePool(diary, is_mended)
    weights = initial_weights()
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    iteration = 0
    while True:
        loss = outer_step(weights, optimizer, pool)
        iteration += 1
        diary.stepped()
        if iteration % 200 == 0:
            print(f"iteration {iteration} query loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
