"""Differentially private training with `torch.func`: a gradient for each sample, clipped by its own norm, with noise.

Nothing is planted: the norms of all samples and the noise are what the method is about.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value, vmap

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CLASSES, SAMPLES = 10, 8000


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 8, 2, padding=3), nn.Conv2d(16, 32, 4, 2)
        self.norm = nn.GroupNorm(4, 16)
        self.fc1, self.fc2 = nn.Linear(32 * 4 * 4, 32), nn.Linear(32, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2, 1)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 1)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class PoissonSampler:
    """Each sample is in a batch by the same chance, which is what the accounting of privacy supposes."""

    def __init__(self, count, rate, longest):
        self.count, self.rate, self.longest = count, rate, longest

    def draw(self):
        return torch.where(torch.rand(self.count) < self.rate)[0][: self.longest]


class RDPAccountant:
    """Renyi divergence of the Gaussian mechanism with subsampling, by its leading term."""

    def __init__(self, rate, noise, delta=1e-5):
        self.rate, self.noise, self.delta, self.steps = rate, noise, delta, 0

    def epsilon(self):
        orders = [1.5, 2, 4, 8, 16, 32, 64]
        divergences = [self.steps * 2 * self.rate**2 * order / self.noise**2 for order in orders]
        return min(
            spent + math.log(1 / self.delta) / (order - 1) for spent, order in zip(divergences, orders, strict=True)
        )


class DPOptimizer:
    """SGD with momentum on clipped sums with noise."""

    def __init__(self, parameters, lr, max_norm, noise_multiplier, expected):
        self.parameters, self.lr = parameters, lr
        self.max_norm, self.noise_multiplier, self.expected = max_norm, noise_multiplier, expected
        self.velocity = {key: torch.zeros_like(value) for key, value in parameters.items()}

    @torch.no_grad()
    def step(self, per_sample):
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in per_sample.values()]).norm(dim=0)
        factors = (self.max_norm / (norms + 1e-6)).clamp(max=1.0)
        for key, gradients in per_sample.items():
            total = torch.einsum("n...,n->...", gradients, factors)
            total += self.noise_multiplier * self.max_norm * torch.randn_like(total)
            self.velocity[key].mul_(0.9).add_(total / self.expected)
            self.parameters[key].sub_(self.lr * self.velocity[key])
        return (norms > self.max_norm).float().mean()


def strokes(count):
    """Pictures with a bar whose direction is the class."""
    labels = torch.randint(CLASSES, (count,))
    angle = (torch.pi * labels / CLASSES).view(-1, 1, 1)
    y, x = torch.meshgrid(torch.linspace(-1, 1, 28), torch.linspace(-1, 1, 28), indexing="ij")
    away = (x * angle.cos() + y * angle.sin() + 0.3 * torch.randn(count, 1, 1)).abs()
    return torch.exp(-20 * away**2)[:, None] + 0.3 * torch.randn(count, 1, 28, 28), labels


def main(diary, _):
    model = SmallCNN()
    parameters = {key: value.detach() for key, value in model.named_parameters()}
    rate, noise = 48 / SAMPLES, 1.1

    def loss_of(parameters, image, label):
        logits = functional_call(model, parameters, (image[None],))
        return F.cross_entropy(logits, label[None])

    per_sample_gradients = vmap(grad_and_value(loss_of), in_dims=(None, 0, 0))
    images, labels = strokes(SAMPLES)
    test_images, test_labels = strokes(200)
    sampler, accountant = PoissonSampler(SAMPLES, rate, longest=96), RDPAccountant(rate, noise)
    optimizer = DPOptimizer(parameters, lr=0.05, max_norm=1.0, noise_multiplier=noise, expected=48)
    for step in range(1, 10**9):
        rows = sampler.draw()
        gradients, losses = per_sample_gradients(parameters, images[rows], labels[rows])
        clipped = optimizer.step(gradients)
        accountant.steps += 1
        diary.stepped()
        if step % 250 == 0:
            with torch.no_grad():
                guesses = functional_call(model, parameters, (test_images,)).argmax(1)
            accuracy = (guesses == test_labels).float().mean()
            print(
                f"step {step}: loss {losses.mean():.3f}, clipped {clipped:.0%}, accuracy {accuracy:.3f}, "
                f"epsilon {accountant.epsilon():.2f}",
                flush=True,
            )


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
