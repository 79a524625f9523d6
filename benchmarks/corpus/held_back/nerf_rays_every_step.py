"""A small NeRF of a scene with a ball: the rays through all pixels of all views are made anew for each batch."""

import math
import sys
from pathlib import Path

import torch
import torch.nn as nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

HEIGHT = WIDTH = 128
FOCAL, NEAR, FAR = 140.0, 2.0, 6.0
VIEWS, RAYS, SAMPLES = 16, 256, 24


def pose_spherical(theta, phi, radius):
    """Where a camera on a sphere is, that looks to its center: 4 x 4."""
    st, ct, sp, cp = math.sin(theta), math.cos(theta), math.sin(phi), math.cos(phi)
    back = torch.tensor([cp * ct, cp * st, sp])
    right = torch.tensor([-st, ct, 0.0])
    pose = torch.eye(4)
    pose[:3, 0], pose[:3, 1], pose[:3, 2] = right, torch.linalg.cross(back, right), back
    pose[:3, 3] = radius * back
    return pose


def get_rays(height, width, focal, c2w):
    """Return origins and directions of the rays through all pixels, each (height, width, 3)."""
    i, j = torch.meshgrid(torch.arange(width), torch.arange(height), indexing="xy")  # planted
    dirs = torch.stack(  # planted
        [(i - width * 0.5) / focal, -(j - height * 0.5) / focal, -torch.ones_like(i, dtype=torch.float)],
        -1,  # planted
    )
    rays_d = torch.sum(dirs[..., None, :] * c2w[:3, :3], -1)  # planted
    return c2w[:3, 3].expand(rays_d.shape), rays_d


def shade(origins, directions):
    """Return the true color of rays: a ball with stripes in front of a white background."""
    d = directions / directions.norm(dim=-1, keepdim=True)
    b = (origins * d).sum(-1)
    root = b**2 - ((origins**2).sum(-1) - 1.0)
    hit = root > 0
    point = origins + (-b - root.clamp(min=0).sqrt())[..., None] * d
    color = 0.5 + 0.5 * torch.sin(point * torch.tensor([9.0, 5.0, 3.0]))
    return torch.where(hit[..., None], color, torch.ones_like(color))


class Embedder:
    def __init__(self, frequencies):
        self.bands = 2.0 ** torch.arange(frequencies)
        self.out = 3 + 6 * frequencies

    def __call__(self, x):
        angles = (x[..., None, :] * self.bands[:, None]).flatten(-2)
        return torch.cat([x, angles.sin(), angles.cos()], -1)


class NeRF(nn.Module):
    def __init__(self, depth=4, width=96):
        super().__init__()
        self.embed, self.embed_views = Embedder(6), Embedder(2)
        sizes = [self.embed.out, *[width] * (depth - 1)]
        self.pts_linears = nn.ModuleList(nn.Linear(size, width) for size in sizes)
        self.alpha = nn.Linear(width, 1)
        self.views = nn.Linear(width + self.embed_views.out, width // 2)
        self.rgb = nn.Linear(width // 2, 3)

    def forward(self, points, viewdirs):
        h = self.embed(points)
        for layer in self.pts_linears:
            h = torch.relu(layer(h))
        views = self.embed_views(viewdirs)[:, None].expand(*h.shape[:2], -1)
        rgb = torch.sigmoid(self.rgb(torch.relu(self.views(torch.cat([h, views], -1)))))
        return rgb, torch.relu(self.alpha(h)[..., 0])


def render_rays(model, rays_o, rays_d):
    """Sample points along rays and sum their colors up by the volume's density."""
    edges = torch.linspace(NEAR, FAR, SAMPLES)
    z = edges + torch.rand(len(rays_o), SAMPLES) * (FAR - NEAR) / SAMPLES
    points = rays_o[:, None] + rays_d[:, None] * z[..., None]
    rgb, sigma = model(points, nn.functional.normalize(rays_d, dim=-1))
    step = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e3)], -1)
    alpha = 1.0 - torch.exp(-sigma * step)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * through
    return (weights[..., None] * rgb).sum(1) + (1.0 - weights.sum(1, keepdim=True))


class Views:
    """The pictures of a scene with the poses of their cameras."""

    def __init__(self, diary, keeps_rays):
        self.diary, self.keeps_rays = diary, keeps_rays
        self.poses = [pose_spherical(2 * math.pi * k / VIEWS, 0.5, 4.0) for k in range(VIEWS)]
        self.kept = self.all_rays()
        self.colors = shade(*self.kept)

    def all_rays(self):
        rays = [get_rays(HEIGHT, WIDTH, FOCAL, pose) for pose in self.poses]  # planted
        return tuple(torch.stack(part).view(-1, 3) for part in zip(*rays, strict=True))  # planted

    def batch(self, count):
        rays_o, rays_d = self.kept
        if not self.keeps_rays:
            with self.diary.planted():
                rays_o, rays_d = self.all_rays()  # planted
        rows = torch.randint(len(rays_o), (count,))
        return rays_o[rows], rays_d[rows], self.colors[rows]


def train(diary, is_mended):
    views, model = Views(diary, keeps_rays=is_mended), NeRF()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.999))
    for i in range(1, 10**9):
        rays_o, rays_d, target = views.batch(RAYS)  # planted
        rgb = render_rays(model, rays_o, rays_d)
        loss = ((rgb - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 5e-4 * 0.1 ** (i / 250_000)
        diary.stepped()
        if i % 100 == 0:
            print(f"[TRAIN] Iter: {i} Loss: {loss.item():.4f} PSNR: {-10 * math.log10(loss.item()):.2f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train(*begin())
