"""Diffusion of digits in the style of EDM (Karras et al.): preconditioning, log-normal noise, an average of weights.

Nothing is planted: the average is kept by one fused operation per step, and samples are drawn only rarely.
"""

import copy
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    images: int = 1500
    side: int = 16
    classes: int = 10
    batch: int = 24
    width: int = 32
    sigma_data: float = 0.5
    p_mean: float = -1.2
    p_std: float = 1.2
    ema: float = 0.999
    sample_every: int = 3000


class Block(nn.Module):
    def __init__(self, inputs, outputs, embedding):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.affine = nn.Linear(embedding, 2 * outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x, embedding):
        hidden = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.affine(embedding)[:, :, None, None].chunk(2, dim=1)
        hidden = self.conv2(F.silu(self.norm2(hidden) * (1 + scale) + shift))
        return self.skip(x) + hidden


class UNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, embedding = config.width, 96
        self.register_buffer("frequencies", torch.randn(24) * 2)
        self.label = nn.Embedding(config.classes, embedding)
        self.embed = nn.Sequential(nn.Linear(48, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.down1, self.down2 = Block(width, width, embedding), Block(width, 2 * width, embedding)
        self.middle = Block(2 * width, 2 * width, embedding)
        self.up2, self.up1 = Block(4 * width, width, embedding), Block(2 * width, width, embedding)
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x, noise, labels):
        angles = noise[:, None] * self.frequencies
        embedding = F.silu(self.embed(torch.cat([angles.cos(), angles.sin()], dim=1)) + self.label(labels))
        high = self.down1(self.first(x), embedding)
        low = self.down2(F.avg_pool2d(high, 2), embedding)
        middle = self.middle(low, embedding)
        up = F.interpolate(self.up2(torch.cat([middle, low], dim=1), embedding), scale_factor=2)
        return self.last(self.up1(torch.cat([up, high], dim=1), embedding))


class Preconditioned(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.data, self.net = config.sigma_data, UNet(config)

    def forward(self, x, sigma, labels):
        sigma = sigma.view(-1, 1, 1, 1)
        total = (sigma.square() + self.data**2).sqrt()
        inner = self.net(x / total, sigma.flatten().log() / 4, labels)
        return (self.data / total).square() * x + sigma * self.data / total * inner


def edm_loss(model, images, labels, config):
    sigma = (torch.randn(len(images)) * config.p_std + config.p_mean).exp()
    weight = (sigma.square() + config.sigma_data**2) / (sigma * config.sigma_data).square()
    noisy = images + torch.randn_like(images) * sigma.view(-1, 1, 1, 1)
    denoised = model(noisy, sigma, labels)
    return (weight.view(-1, 1, 1, 1) * (denoised - images).square()).mean()


@torch.no_grad()
def euler_samples(model, config, steps=8):
    ramp = torch.linspace(20 ** (1 / 7), 0.01 ** (1 / 7), steps) ** 7
    labels = torch.arange(config.classes)
    x = torch.randn(len(labels), 1, config.side, config.side) * ramp[0]
    for now, following in zip(ramp, [*ramp[1:], torch.tensor(0.0)], strict=True):
        slope = (x - model(x, now.expand(len(x)), labels)) / now
        x = x + slope * (following - now)
    return x


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False), decay
        self.averages = list(self.model.parameters())

    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(self.averages, list(model.parameters()), 1 - self.decay)


def train(diary, config):
    images = F.interpolate(torch.rand(config.images, 1, 4, 4), size=config.side, mode="bilinear") * 2 - 1
    labels = torch.randint(config.classes, (config.images,))
    model = Preconditioned(config)
    ema = EMA(model, config.ema)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    step = 0
    while True:
        rows = torch.randint(config.images, (config.batch,))
        loss = edm_loss(model, images[rows], labels[rows], config)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 200)
        optimizer.step()
        ema.update(model)
        step += 1
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % config.sample_every == 0:
            print(f"samples from {euler_samples(ema.model, config).std().item():.3f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    diary, _ = begin()
    torch.manual_seed(2022)
    torch.set_num_threads(1)
    train(diary, Config())
