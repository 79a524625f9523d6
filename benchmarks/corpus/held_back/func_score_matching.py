"""Sliced score matching in functional torch: `jvp` in the loss, `grad_and_value` around it, an optimizer of its own.

Nothing is planted: the derivative along random directions is what this loss is, and its moments are updated in place.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, jvp

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

DIM, BATCH, SIGMA = 64, 512, 0.1


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.b(nn.functional.silu(self.a(self.norm(x))))


def score_net(width=256, depth=2):
    inner = (Residual(width) for _ in range(depth))
    return nn.Sequential(nn.Linear(DIM, width), *inner, nn.SiLU(), nn.Linear(width, DIM))


def sample_mixture(means, count):
    which = torch.randint(len(means), (count,))
    return means[which] + 0.3 * torch.randn(count, DIM)


def make_loss(net):
    def loss_fn(params, x, directions):
        def score(points):
            return functional_call(net, params, (points,))

        value, along = jvp(score, (x,), (directions,))
        trace = (along * directions).sum(1)
        return (trace + 0.5 * (value * value).sum(1)).mean()

    return loss_fn


class Lion:
    """The sign of a mix of momentum and gradient."""

    def __init__(self, params, lr=2e-4, betas=(0.9, 0.99), decay=0.01):
        self.values = list(params.values())
        self.momentum = [torch.zeros_like(value) for value in self.values]
        self.lr, self.betas, self.decay = lr, betas, decay

    @torch.no_grad()
    def step(self, gradients):
        gradients = list(gradients.values())
        signs = torch._foreach_lerp(gradients, self.momentum, self.betas[0])
        torch._foreach_sign_(signs)
        torch._foreach_mul_(self.values, 1 - self.lr * self.decay)
        torch._foreach_add_(self.values, signs, alpha=-self.lr)
        torch._foreach_lerp_(self.momentum, gradients, 1 - self.betas[1])


@torch.no_grad()
def langevin(net, params, count=64, steps=30, size=5e-3):
    x = torch.randn(count, DIM)
    for _ in range(steps):
        x += size * functional_call(net, params, (x,)) + (2 * size) ** 0.5 * torch.randn_like(x)
    return x


def closest(samples, means):
    return torch.cdist(samples, means).min(1).values.mean().item()


def main(diary):
    torch.manual_seed(2)
    means = 2.0 * torch.randn(8, DIM)
    net = score_net()
    params = {name: value.detach().clone() for name, value in net.named_parameters()}
    step_fn, optimizer = grad_and_value(make_loss(net)), Lion(params)
    step, smooth = 0, torch.zeros(())
    while True:
        x = sample_mixture(means, BATCH)
        x += SIGMA * torch.randn_like(x)
        directions = torch.randint(2, x.shape).float().mul_(2).sub_(1)
        gradients, loss = step_fn(params, x, directions)
        optimizer.step(gradients)
        smooth.lerp_(loss.detach(), 0.02)
        step += 1
        diary.stepped()
        if step % 500 == 0:
            distance = closest(langevin(net, params), means)
            print(f"step {step} loss {smooth.item():.3f} distance of samples to modes {distance:.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(begin()[0])
