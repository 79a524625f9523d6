"""Diffusion on small pictures with v-prediction, an average of the weights and a few DDIM samples now and then.

Nothing is planted: the average costs a percent, and samples are drawn every 600 steps.
"""

import copy
import itertools
import math
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.utils import save_image

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, BATCH, TIMES = 32, 16, 1000


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, time_dim):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, c_in), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, c_out), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.time = nn.Linear(time_dim, 2 * c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.time(t)[:, :, None, None].chunk(2, 1)
        h = self.norm2(self.conv1(F.silu(self.norm1(x)))) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(h))


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64), time_dim=96):
        super().__init__()
        a, b, c = widths
        self.time = nn.Sequential(nn.Linear(64, time_dim), nn.SiLU(), nn.Linear(time_dim, time_dim))
        self.register_buffer("frequencies", torch.exp(-math.log(10000) * torch.arange(32) / 32))
        self.stem, self.head = nn.Conv2d(3, a, 3, padding=1), nn.Conv2d(a, 3, 3, padding=1)
        self.down1, self.down2 = ResBlock(a, a, time_dim), ResBlock(a, b, time_dim)
        self.middle = ResBlock(b, c, time_dim)
        self.up2, self.up1 = ResBlock(c + b, b, time_dim), ResBlock(b + a, a, time_dim)

    def forward(self, x, t):
        angles = t[:, None] * self.frequencies
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x1 = self.down1(self.stem(x), t)
        x2 = self.down2(F.avg_pool2d(x1, 2), t)
        x3 = self.middle(F.avg_pool2d(x2, 2), t)
        y = self.up2(torch.cat([F.interpolate(x3, scale_factor=2), x2], 1), t)
        y = self.up1(torch.cat([F.interpolate(y, scale_factor=2), x1], 1), t)
        return self.head(F.silu(y))


class Diffusion:
    """A cosine schedule, kept in tables."""

    def __init__(self):
        angle = (torch.arange(TIMES) + 0.5) / TIMES * math.pi / 2
        self.signal, self.noise = angle.cos(), angle.sin()

    def loss(self, model, x):
        t = torch.randint(TIMES, (len(x),))
        signal, sigma = self.signal[t].view(-1, 1, 1, 1), self.noise[t].view(-1, 1, 1, 1)
        noise = torch.randn_like(x)
        return F.mse_loss(model(signal * x + sigma * noise, t.float()), signal * noise - sigma * x)

    @torch.no_grad()
    def ddim(self, model, count=4, steps=15):
        x = torch.randn(count, 3, SIDE, SIDE)
        times = torch.linspace(TIMES - 1, 0, steps + 1).long().tolist()
        for now, then in itertools.pairwise(times):
            v = model(x, torch.full((count,), float(now)))
            clean = (self.signal[now] * x - self.noise[now] * v).clamp(-1, 1)
            noise = (x - self.signal[now] * clean) / self.noise[now]
            x = self.signal[then] * clean + self.noise[then] * noise
        return x


class ExponentialMovingAverage:
    def __init__(self, model, decay=0.999):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay
        self.ours, self.theirs = list(self.model.parameters()), list(model.parameters())

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.ours, self.theirs, 1 - self.decay)


def main(diary):
    torch.manual_seed(7)
    out = Path(tempfile.mkdtemp(prefix="unet_ddim_"))
    pictures = F.interpolate(torch.rand(1600, 3, 6, 6) * 2 - 1, size=SIDE, mode="bilinear")
    model, diffusion = UNet(), Diffusion()
    average = ExponentialMovingAverage(model)
    optimizer = torch.optim.AdamW(model.parameters(), 4e-4)
    step, mean = 0, torch.zeros(())
    while True:
        for rows in torch.randperm(len(pictures)).split(BATCH):
            loss = diffusion.loss(model, pictures[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            average.update()
            mean.lerp_(loss.detach(), 0.02)
            step += 1
            diary.stepped()
            if step % 50 == 0:
                print(f"{step:6d} loss {mean.item():.4f}", flush=True)
            if step % 600 == 0:
                save_image(diffusion.ddim(average.model) * 0.5 + 0.5, out / "latest.png", nrow=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(begin()[0])
