"""A denoising diffusion model of sprites of 16 by 16; the cosine schedule is made anew for each image's time."""

import math
import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

TIMESTEPS = 1000


def cosine_betas(timesteps, max_beta=0.999):
    def alpha_bar(t):
        return math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2

    return [min(1 - alpha_bar((i + 1) / timesteps) / alpha_bar(i / timesteps), max_beta) for i in range(timesteps)]


class NoiseScheduler:
    """How much of an image is left at a time."""

    def __init__(self):
        self.alphas_cumprod = torch.cumprod(1 - torch.tensor(cosine_betas(TIMESTEPS)), 0)

    def signal_and_noise(self, times):
        left = []
        for time in times.tolist():
            alphas = 1.0 - torch.tensor(cosine_betas(TIMESTEPS))  # planted
            left.append(torch.cumprod(alphas, 0)[time])
        left = torch.stack(left)
        return left.sqrt(), (1 - left).sqrt()


class KeptNoiseScheduler(NoiseScheduler):
    def signal_and_noise(self, times):
        left = self.alphas_cumprod[times]
        return left.sqrt(), (1 - left).sqrt()


class ResBlock(nn.Module):
    def __init__(self, n_in, n_out, n_time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, n_in), nn.Conv2d(n_in, n_out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, n_out), nn.Conv2d(n_out, n_out, 3, padding=1)
        self.time = nn.Linear(n_time, n_out)
        self.skip = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(emb)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width=24, n_time=64):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.arange(16) * (-math.log(10000.0) / 16)))
        self.embed = nn.Sequential(nn.Linear(32, n_time), nn.SiLU())
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.down2 = ResBlock(width, width, n_time), ResBlock(width, 2 * width, n_time)
        self.middle = ResBlock(2 * width, 2 * width, n_time)
        self.up = ResBlock(3 * width, width, n_time)
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, times):
        angles = times[:, None] * self.frequencies
        emb = self.embed(torch.cat([angles.sin(), angles.cos()], 1))
        fine = self.down1(self.stem(x), emb)
        coarse = self.middle(self.down2(F.avg_pool2d(fine, 2), emb), emb)
        both = torch.cat([fine, F.interpolate(coarse, scale_factor=2)], 1)
        return self.head(self.up(both, emb))


def make_sprites(count):
    sprites = torch.rand(count, 3, 16, 8).round().mul(2).sub(1) * torch.rand(count, 3, 1, 1)
    return torch.cat([sprites, sprites.flip(3)], 3)


diary, is_mended = begin()
torch.set_num_threads(1)
torch.manual_seed(0)
sprites = make_sprites(6000)
model = UNet()
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
scheduler = KeptNoiseScheduler() if is_mended else NoiseScheduler()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
step = 0
while True:
    clean = sprites[torch.randint(len(sprites), (24,))]
    noise = torch.randn_like(clean)
    times = torch.randint(TIMESTEPS, (len(clean),))
    with diary.planted():
        signal_rate, noise_rate = scheduler.signal_and_noise(times)  # planted
    noisy = signal_rate.view(-1, 1, 1, 1) * clean + noise_rate.view(-1, 1, 1, 1) * noise
    loss = F.mse_loss(model(noisy, times), noise)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    average.update_parameters(model)
    diary.stepped()
    step += 1
    if step % 100 == 0:
        print("step", step, "loss", round(loss.item(), 4), flush=True)
