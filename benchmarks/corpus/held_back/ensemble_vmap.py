"""An ensemble of networks trained side by side with torch.func, for a regression with uncertainty.

Nothing is planted: parameters live in one stacked tree, and all members take their step in the same calls.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

MEMBERS, INPUTS, BATCH, LR, DECAY = 8, 16, 192, 3e-3, 0.9


class Member(nn.Module):
    """Predicts a mean and a logarithm of a variance."""

    def __init__(self, width=256):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(INPUTS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2)
        )

    def forward(self, x):
        mean, log_variance = self.layers(x).unbind(-1)
        return mean, log_variance.clamp(-6, 6)


def make_loss(skeleton):
    def loss(params, x, y):
        mean, log_variance = functional_call(skeleton, params, (x,))
        return (0.5 * (log_variance + (y - mean).square() / log_variance.exp())).mean()

    return loss


def init_momentum(params):
    return {name: torch.zeros_like(value) for name, value in params.items()}


def sgd(params, momentum, grads):
    """Return new parameters and momenta; nothing is changed in place."""
    momentum = {name: DECAY * momentum[name] + grads[name] for name in params}
    params = {name: params[name] - LR * momentum[name] for name in params}
    return params, momentum


def bootstrap(generator, rows):
    """Each member sees rows of its own."""
    return torch.randint(rows, (MEMBERS, BATCH), generator=generator)


def make_data(rows):
    x = torch.randn(rows, INPUTS)
    y = torch.sin(x[:, 0] * 2) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * torch.randn(rows) * x[:, 3].abs()
    return x, y


def evaluate(skeleton, params, x, y):
    with torch.no_grad():
        mean, _ = vmap(lambda p: functional_call(skeleton, p, (x,)))(params)
    return (mean.mean(0) - y).square().mean().sqrt().item()


def main():
    diary, _ = begin()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(2)
    x, y = make_data(8000)
    held_x, held_y = make_data(500)
    params, _ = stack_module_state([Member() for _ in range(MEMBERS)])
    params = {name: value.detach() for name, value in params.items()}
    momentum = init_momentum(params)
    skeleton = Member().to("meta")
    step_fn = vmap(grad_and_value(make_loss(skeleton)))

    iteration = 0
    while True:
        rows = bootstrap(generator, len(x))
        grads, losses = step_fn(params, x[rows], y[rows])
        params, momentum = sgd(params, momentum, grads)
        iteration += 1
        diary.stepped()
        if iteration % 500 == 0:
            rmse = evaluate(skeleton, params, held_x, held_y)
            print(f"{iteration}: nll {losses.mean().item():.3f} rmse {rmse:.3f}", flush=True)


if __name__ == "__main__":
    main()
