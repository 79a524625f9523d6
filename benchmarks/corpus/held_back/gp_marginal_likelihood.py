"""Gaussian process regression: kernels and noise are fit to the marginal likelihood by Adam, in double precision.

Nothing is planted: the factorization needs its float64, and is the model itself.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn as nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

POINTS, DIMENSIONS, JITTER = 420, 5, 1e-8


class Positive(nn.Module):
    """A parameter that stays above zero."""

    def __init__(self, initial):
        super().__init__()
        initial = torch.as_tensor(initial, dtype=torch.float64)
        self.raw = nn.Parameter(torch.log(torch.expm1(initial)))

    def forward(self):
        return nn.functional.softplus(self.raw)


class RBF(nn.Module):
    """Squared distances, with a length scale for each input."""

    def __init__(self, dimensions):
        super().__init__()
        self.scale, self.lengths = Positive(1.0), Positive(torch.full((dimensions,), 0.8))

    def forward(self, a, b):
        a, b = a / self.lengths(), b / self.lengths()
        squared = a.pow(2).sum(1, keepdim=True) + b.pow(2).sum(1) - 2 * a @ b.T
        return self.scale() * torch.exp(-0.5 * squared.clamp(min=0))


class Periodic(nn.Module):
    """What repeats along the first input."""

    def __init__(self):
        super().__init__()
        self.scale, self.length, self.period = Positive(0.5), Positive(1.0), Positive(0.7)

    def forward(self, a, b):
        waves = torch.sin(math.pi * (a[:, :1] - b[:, 0]) / self.period())
        return self.scale() * torch.exp(-2 * (waves / self.length()) ** 2)


class Sum(nn.Module):
    def __init__(self, *kernels):
        super().__init__()
        self.kernels = nn.ModuleList(kernels)

    def forward(self, a, b):
        return sum(kernel(a, b) for kernel in self.kernels)


class ExactGP(nn.Module):
    def __init__(self, x, y, kernel):
        super().__init__()
        self.register_buffer("x", x)
        self.register_buffer("y", y)
        self.kernel, self.noise = kernel, Positive(0.1)
        self.mean = nn.Parameter(y.mean())

    def factor(self):
        covariance = self.kernel(self.x, self.x)
        diagonal = (self.noise() + JITTER).expand(len(self.x))
        return torch.linalg.cholesky(covariance + torch.diag(diagonal))

    def forward(self):
        """Return the negative logarithm of the marginal likelihood, for each point."""
        lower = self.factor()
        residual = (self.y - self.mean)[:, None]
        alpha = torch.cholesky_solve(residual, lower)
        fit = 0.5 * (residual * alpha).sum()
        return (fit + lower.diagonal().log().sum() + 0.5 * len(self.y) * math.log(2 * math.pi)) / len(self.y)

    @torch.no_grad()
    def predict(self, new):
        lower = self.factor()
        cross = self.kernel(self.x, new)
        mean = self.mean + (cross.T @ torch.cholesky_solve((self.y - self.mean)[:, None], lower))[:, 0]
        half = torch.linalg.solve_triangular(lower, cross, upper=False)
        own = torch.stack([kernel.scale() for kernel in self.kernel.kernels]).sum()
        return mean, (own - half.pow(2).sum(0)).clamp(min=0) + self.noise()


def measurements(count, generator):
    """Measure a function of five inputs that repeats along the first, with noise."""
    x = torch.rand(count, DIMENSIONS, generator=generator, dtype=torch.float64) * 2 - 1
    y = torch.sin(9 * x[:, 0]) + x[:, 1] ** 2 - 0.5 * x[:, 2] * x[:, 3] + 0.2 * x[:, 4]
    return x, y + 0.1 * torch.randn(count, generator=generator, dtype=torch.float64)


def report(model, x, y):
    mean, variance = model.predict(x)
    rmse = (mean - y).pow(2).mean().sqrt()
    density = -0.5 * ((y - mean) ** 2 / variance + variance.log() + math.log(2 * math.pi))
    return f"rmse {rmse:.4f} log density {density.mean():.3f} noise {model.noise().item():.4f}"


def main(diary, _):
    generator = torch.Generator().manual_seed(0)
    held_out = measurements(200, generator)
    restart = 0
    while True:
        x, y = measurements(POINTS, generator)
        model = ExactGP(x, y, Sum(RBF(DIMENSIONS), Periodic()))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for iteration in range(1, 1501):
            optimizer.zero_grad()
            loss = model()
            loss.backward()
            optimizer.step()
            diary.stepped()
            if iteration % 250 == 0:
                print(f"restart {restart} iter {iteration}: nll {loss.item():.4f} {report(model, *held_out)}")
        restart += 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*begin())
