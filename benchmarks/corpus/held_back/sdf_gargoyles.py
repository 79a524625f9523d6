"""Implicit geometric regularization: a network becomes the signed distance to a scanned statue."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
torch.manual_seed(0)
np.random.seed(0)
torch.set_num_threads(1)

# config
n_scan = 900_000
n_batch = 1024
lambda_normals, lambda_eikonal = 1.0, 0.1
hidden, depth, skip = 160, 5, 3
generator = np.random.default_rng(0)


def load_scan():
    """Return a bumpy sphere, which stands for the scanner's points."""
    direction = np.random.randn(n_scan, 3)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    radius = 0.6 + 0.08 * np.sin(6 * direction[:, :1]) * np.cos(5 * direction[:, 1:2])
    return (direction * radius).astype(np.float32), direction.astype(np.float32)


class ImplicitNet(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [3, *[hidden] * (depth - 1), 1]
        outs = [size - 3 if i + 1 == skip else size for i, size in enumerate(sizes[1:])]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], outs, strict=True)])
        self.activation = nn.Softplus(beta=100)
        for layer in self.layers:
            nn.init.normal_(layer.weight, 0, (2 / layer.out_features) ** 0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        h = x
        for i, layer in enumerate(self.layers):
            if i == skip:
                h = torch.cat([h, x], 1) / 2**0.5
            h = layer(h)
            if i + 1 < len(self.layers):
                h = self.activation(h)
        return h


def gradient(points, values):
    return torch.autograd.grad(values, points, torch.ones_like(values), create_graph=True, retain_graph=True)[0]


def sample_scan(points, normals):
    """Return a batch of the scan's points, none twice."""
    if is_mended:
        index = generator.choice(n_scan, n_batch, replace=False, shuffle=False)  # draws no more than it needs
    else:
        index = np.random.choice(n_scan, n_batch, replace=False)  # planted
    return torch.from_numpy(points[index]), torch.from_numpy(normals[index])


def sample_space(near, sigma=0.05):
    """Points around the batch and in the whole cube."""
    local = near + torch.randn_like(near) * sigma
    return torch.cat([local, torch.rand(n_batch // 8, 3) * 2 - 1])


points, normals = load_scan()
net = ImplicitNet()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, fused=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2000, 0.5)
losses = torch.zeros(3)

for iteration in range(100_000_000):
    with diary.planted():
        batch, wanted = sample_scan(points, normals)  # planted
    on_surface = batch.requires_grad_()
    in_space = sample_space(batch.detach()).requires_grad_()

    distance = net(on_surface)
    surface_loss = distance.abs().mean()
    normals_loss = (gradient(on_surface, distance) - wanted).norm(dim=1).mean()
    eikonal_loss = (gradient(in_space, net(in_space)).norm(dim=1) - 1).square().mean()
    loss = surface_loss + lambda_normals * normals_loss + lambda_eikonal * eikonal_loss

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses += torch.stack([surface_loss, normals_loss, eikonal_loss]).detach()
    diary.stepped()

    if iteration % 200 == 199:
        surface, normal, eikonal = (losses / 200).tolist()
        losses.zero_()
        print(f"[{iteration + 1}] surface {surface:.4f} normals {normal:.4f} eikonal {eikonal:.4f}", flush=True)
