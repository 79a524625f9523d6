"""A small radiance field on rays of a made scene, with the checks of autograd for NaN left on since it was debugged.

After nerf-pytorch issue 42 ("torch.autograd.set_detect_anomaly(True) seems slow down the training"): a call at the top of
run_nerf_helpers.py, meant for debugging, slows the training "by a large amount (almost 50 %)". Anomaly mode keeps a Python
stack for each operation of the forward pass and searches each gradient of the backward pass for NaN. The fix: leave it
off. The thread names almost 50 %, a fork of the project 6 to 9 iterations a second.
"""

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    rays: int = 384
    coarse: int = 24
    fine: int = 24
    width: int = 128
    depth: int = 5
    near: float = 1.0
    far: float = 5.0
    learning_rate: float = 5e-4


class Embedder:
    """Positions as sines and cosines of rising frequency."""

    def __init__(self, frequencies):
        self.bands = 2.0 ** torch.arange(frequencies)
        self.width = 3 + 6 * frequencies

    def __call__(self, points):
        phases = (points[..., None, :] * self.bands[:, None]).flatten(-2)
        return torch.cat([points, phases.sin(), phases.cos()], -1)


class NeRF(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_points, self.embed_views = Embedder(8), Embedder(3)
        widths = [self.embed_points.width] + [config.width] * config.depth
        self.trunk = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.density = nn.Linear(config.width, 1)
        self.view = nn.Linear(config.width + self.embed_views.width, config.width // 2)
        self.colour = nn.Linear(config.width // 2, 3)

    def forward(self, points, views):
        hidden = self.embed_points(points)
        for layer in self.trunk:
            hidden = functional.relu(layer(hidden))
        seen = self.embed_views(views)[:, None].expand(-1, points.shape[1], -1)
        shade = functional.relu(self.view(torch.cat([hidden, seen], -1)))
        return torch.sigmoid(self.colour(shade)), self.density(hidden)[..., 0]


class RaySampler:
    """Rays from cameras around a made scene: three coloured balls before a white ground."""

    def __init__(self, config, count=200_000):
        self.origins = origins = functional.normalize(torch.randn(count, 3), dim=-1) * 3
        self.directions = functional.normalize(-origins + 0.5 * torch.randn(count, 3), dim=-1)
        self.colours = torch.ones(count, 3)
        nearest = torch.full((count,), float("inf"))
        for centre, colour in zip(torch.eye(3) - 0.3, torch.eye(3) * 0.8 + 0.1, strict=True):
            along = ((centre - origins) * self.directions).sum(-1)
            gap = (origins + along[:, None] * self.directions - centre).norm(dim=-1)
            hit = (gap < 0.4) & (along < nearest)
            self.colours[hit], nearest[hit] = colour, along[hit]
        self.batch = config.rays

    def __call__(self):
        chosen = torch.randint(len(self.origins), (self.batch,))
        return self.origins[chosen], self.directions[chosen], self.colours[chosen]


def composite(colours, densities, depths):
    """Colours of the rays, and the weights of their samples."""
    gaps = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 1e3)], -1)
    alpha = 1 - torch.exp(-functional.relu(densities) * gaps)
    passed = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * passed
    return (weights[..., None] * colours).sum(-2) + (1 - weights.sum(-1, keepdim=True)), weights


def finer_depths(depths, weights, count):
    """Depths drawn where the coarse pass found something, joined with those it used."""
    middles = (depths[:, 1:] + depths[:, :-1]) / 2
    shares = (weights[:, 1:-1] + 1e-5) / (weights[:, 1:-1] + 1e-5).sum(-1, keepdim=True)
    sums = torch.cat([torch.zeros_like(shares[:, :1]), shares.cumsum(-1)], -1)
    drawn = torch.rand(len(depths), count)
    above = torch.searchsorted(sums, drawn, right=True).clamp(1, sums.shape[-1] - 1)
    low, high = sums.gather(1, above - 1), sums.gather(1, above)
    part = (drawn - low) / (high - low).clamp_min(1e-5)
    start, end = middles.gather(1, above - 1), middles.gather(1, above)
    return torch.cat([depths, start + part * (end - start)], -1).sort(-1).values


def render_rays(config, coarse, fine, origins, directions):
    steps = torch.linspace(config.near, config.far, config.coarse)
    depths = steps + torch.rand(len(origins), config.coarse) * (config.far - config.near) / config.coarse
    rough, weights = composite(*coarse(origins[:, None] + depths[..., None] * directions[:, None], directions), depths)
    depths = finer_depths(depths, weights.detach(), config.fine)
    colours, _ = composite(*fine(origins[:, None] + depths[..., None] * directions[:, None], directions), depths)
    return colours, rough


def main():
    diary, is_mended = begin()
    if not is_mended:
        torch.autograd.set_detect_anomaly(True)  # planted
    config = Config()
    sampler, coarse, fine = RaySampler(config), NeRF(config), NeRF(config)
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=config.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1 ** (1 / 50_000))
    for step in range(1, 10**9):
        origins, directions, wanted = sampler()
        colours, rough = render_rays(config, coarse, fine, origins, directions)
        loss = functional.mse_loss(colours, wanted) + functional.mse_loss(rough, wanted)
        optimizer.zero_grad()
        loss.backward()  # planted
        optimizer.step()
        schedule.step()
        diary.stepped()
        if step % 200 == 0:
            print(f"step {step}: PSNR {-10 * functional.mse_loss(colours, wanted).log10().item():.2f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    main()
