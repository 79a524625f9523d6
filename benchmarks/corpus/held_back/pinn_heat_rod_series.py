"""A network that solves the heat equation of a rod; its error against the Fourier series is followed in each step."""

import math
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

DIFFUSION, TERMS = 0.05, 80


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


def make_network(width=64, depth=4):
    layers = [nn.Linear(2, width), Sine()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), Sine()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(network, points):
    """How far the network is from u_t = D u_xx."""
    points.requires_grad_(True)
    first = derivative(network(points), points)
    second = derivative(first[:, :1], points)[:, :1]
    return first[:, 1:] - DIFFUSION * second


def start_shape(x):
    """Return a rod that is hot in its middle third."""
    return ((x > 1 / 3) & (x < 2 / 3)).float()


def series_solution(points):
    """Return the solution as a sum of sines that fade."""
    x, t = points[:, :1], points[:, 1:]
    u = torch.zeros_like(x)
    for n in range(1, TERMS + 1):
        amplitude = 2 / (n * math.pi) * (math.cos(n * math.pi / 3) - math.cos(2 * n * math.pi / 3))
        fading = torch.exp(-DIFFUSION * (n * math.pi) ** 2 * t)
        u = u + amplitude * torch.sin(n * math.pi * x) * fading  # planted
    return u


class ErrorMeter:
    """The relative error on a grid."""

    def __init__(self, diary, is_mended):
        axis = torch.linspace(0, 1, 64)
        self.grid = torch.cartesian_prod(axis, axis)
        self.diary = diary
        self.solution = series_solution(self.grid) if is_mended else None

    def reference(self):
        if self.solution is not None:
            return self.solution
        with self.diary.planted():
            return series_solution(self.grid)  # planted

    @torch.no_grad()
    def error(self, network):
        reference = self.reference()
        return (network(self.grid) - reference).norm() / reference.norm()


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
    meter = ErrorMeter(diary, is_mended)
    best = torch.tensor(math.inf)
    for step in range(1_000_000_000):
        inside = torch.rand(1500, 2)
        x = torch.rand(200, 1)
        start = torch.cat([x, torch.zeros_like(x)], 1)
        edges = torch.cat([torch.randint(2, (200, 1)).float(), torch.rand(200, 1)], 1)
        loss = residual(network, inside).square().mean()
        loss = loss + 10 * (network(start) - start_shape(x)).square().mean() + 10 * network(edges).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        best = torch.minimum(best, meter.error(network))
        diary.stepped()
        if step % 200 == 0:
            print(f"step {step} loss {loss.item():.5f} best error {best.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
