"""A network that solves the heat equation: its loss takes derivatives of the network by its inputs.

Nothing is planted: points are drawn at once, and derivatives are part of the loss.
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class PINN(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        )

    def forward(self, x, t):
        return self.net(torch.cat([x, t], 1))


def residual(model, x, t, alpha=0.1):
    u = model(x, t)
    ones = torch.ones_like(u)
    u_t = torch.autograd.grad(u, t, ones, create_graph=True)[0]
    u_x = torch.autograd.grad(u, x, ones, create_graph=True)[0]
    u_xx = torch.autograd.grad(u_x, x, ones, create_graph=True)[0]
    return u_t - alpha * u_xx


def train(diary, points=1024):
    model = PINN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    iteration = 0
    while True:
        x, t = (torch.rand(points, 1, requires_grad=True) for _ in range(2))
        begin_x = torch.rand(points, 1)
        physics = residual(model, x, t).pow(2).mean()
        start = (model(begin_x, torch.zeros_like(begin_x)) - torch.sin(torch.pi * begin_x)).pow(2).mean()
        loss = physics + 10 * start
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 200 == 0:
            print(f"iteration {iteration}: {loss.item():.3e}", flush=True)
        iteration += 1
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(8)
    torch.set_num_threads(1)
    train(begin()[0])
