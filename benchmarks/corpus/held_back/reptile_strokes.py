"""Reptile on tasks of a few stroke pictures, with functional torch: inner steps are gradient descent on a dictionary.

Nothing is planted: tasks are made for all of their pictures at once, and unseen tasks are tried every 40 steps.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WAYS, SHOTS, SIDE, INNER_STEPS, INNER_LR, OUTER_LR = 5, 4, 28, 4, 0.05, 0.3


def conv_net(width=32):
    layers, c = [], 1
    for _ in range(3):
        layers += [nn.Conv2d(c, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool2d(2)]
        c = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 9, WAYS))


class StrokeTasks:
    """Each class is a sum of a few bent lines, each picture a shifted and noisy print of it."""

    def __init__(self, seed, classes):
        generator = torch.Generator().manual_seed(seed)
        axis = torch.linspace(-1, 1, SIDE)
        a, b, bend, shift = torch.rand(4, classes, 3, 1, 1, generator=generator) * 2 - 1
        line = a * axis[None, None, :, None] + b * axis + bend * axis.square() + 0.4 * shift
        self.prints = torch.exp(-80 * line.square()).amax(1)

    def draw(self, shots):
        chosen = torch.randperm(len(self.prints))[:WAYS].repeat_interleave(shots)
        n = len(chosen)
        theta = torch.eye(2, 3).repeat(n, 1, 1)
        theta[:, :, 2] = torch.empty(n, 2).uniform_(-0.2, 0.2)
        theta[:, :, :2] += 0.1 * torch.randn(n, 2, 2)
        grid = F.affine_grid(theta, (n, 1, SIDE, SIDE), align_corners=False)
        x = F.grid_sample(self.prints[chosen][:, None], grid, align_corners=False)
        return x + 0.1 * torch.randn_like(x), torch.arange(WAYS).repeat_interleave(shots)


def make_objective(net):
    def objective(weights, x, y):
        return F.cross_entropy(functional_call(net, weights, (x,)), y)

    return objective


def adapt(step_of, weights, x, y, steps):
    """Return weights after some steps on a task, and the last loss."""
    loss = None
    for _ in range(steps):
        gradients, loss = step_of(weights, x, y)
        moved = torch._foreach_sub(list(weights.values()), [INNER_LR * g for g in gradients.values()])
        weights = dict(zip(weights, moved, strict=True))
    return weights, loss


@torch.no_grad()
def accuracy(net, weights, x, y):
    return (functional_call(net, weights, (x,)).argmax(1) == y).float().mean().item()


def main():
    diary, _ = begin()
    torch.set_num_threads(1)
    torch.manual_seed(31)
    net = conv_net()
    weights = {name: p.detach().clone() for name, p in net.named_parameters()}
    step_of = grad_and_value(make_objective(net))
    seen, unseen = StrokeTasks(1, 400), StrokeTasks(2, 80)
    iteration, running = 0, 0.0
    while True:
        x, y = seen.draw(SHOTS)
        adapted, loss = adapt(step_of, weights, x, y, INNER_STEPS)
        outer_lr = max(OUTER_LR * (1 - iteration / 50_000), 0.02)
        torch._foreach_lerp_(list(weights.values()), list(adapted.values()), outer_lr)
        running = 0.95 * running + 0.05 * loss
        iteration += 1
        if iteration % 40 == 0:
            x, y = unseen.draw(SHOTS + 5)
            support = torch.arange(len(y)) % (SHOTS + 5) < SHOTS
            tried, _ = adapt(step_of, weights, x[support], y[support], INNER_STEPS)
            score = accuracy(net, tried, x[~support], y[~support])
            print(f"iteration {iteration} loss {running.item():.3f} unseen accuracy {score:.3f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
