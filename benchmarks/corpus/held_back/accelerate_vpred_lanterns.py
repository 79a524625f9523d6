"""Diffusion of lanterns with v-prediction, a cosine schedule and weights by signal to noise, trained with Accelerate.

Nothing is planted: the schedule is a table, batches are taken whole, and the average of the weights is one call.
"""

import math
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

STEPS, SIZE = 1000, 24


def make_lanterns(count):
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    wide, high = 0.3 + 0.4 * torch.rand(count, 1, 1), 0.5 + 0.4 * torch.rand(count, 1, 1)
    body = ((xs / wide) ** 4 + (ys / high) ** 4 < 1).float()
    glow = torch.exp(-3 * (xs**2 + ys**2)) * body
    hue = torch.rand(count, 3, 1, 1)
    return (hue * body[:, None] + glow[:, None]).clamp(0, 1) * 2 - 1


def cosine_schedule():
    t = torch.arange(STEPS + 1) / STEPS
    kept = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square()
    return (kept / kept[0])[1:].clamp(1e-4, 0.9999)


class Stage(nn.Module):
    def __init__(self, width, dim):
        super().__init__()
        self.norm, self.mix = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.condition = nn.Linear(dim, width)
        self.out_norm, self.out = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x, condition):
        h = self.mix(F.silu(self.norm(x))) + self.condition(condition)[:, :, None, None]
        return x + self.out(F.silu(self.out_norm(h)))


class UNet(nn.Module):
    def __init__(self, width=32, dim=128):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2)))
        self.embed = nn.Sequential(nn.Linear(dim, dim), nn.SiLU())
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.high_in, self.high_out = Stage(width, dim), Stage(width, dim)
        self.down, self.low, self.lower = (
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            Stage(2 * width, dim),
            Stage(2 * width, dim),
        )
        self.up, self.join = nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.Conv2d(2 * width, width, 1)
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None] * self.frequencies
        condition = self.embed(torch.cat([angles.sin(), angles.cos()], 1))
        high = self.high_in(self.enter(x), condition)
        low = self.lower(self.low(self.down(high), condition), condition)
        return self.leave(self.high_out(self.join(torch.cat([self.up(low), high], 1)), condition))


class Average:
    """An average of the weights for sampling."""

    def __init__(self, model, decay=0.999):
        self.decay, self.of = decay, [one.detach() for one in model.parameters()]
        self.kept = [one.clone() for one in self.of]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.kept, self.of, 1 - self.decay)


def main():
    diary, _ = begin()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    images, kept, batch = make_lanterns(3000), cosine_schedule(), 16
    signal, noise_level = kept.sqrt()[:, None, None, None], (1 - kept).sqrt()[:, None, None, None]
    weights = (kept / (1 - kept)).clamp(max=5.0) / (kept / (1 - kept) + 1)  # min-SNR for v-prediction
    model = UNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    average, total, step = Average(accelerator.unwrap_model(model)), torch.zeros(()), 0
    while True:
        for rows in torch.randperm(len(images)).split(batch):
            with accelerator.accumulate(model):
                clean = images[rows]
                t, noise = torch.randint(STEPS, (len(rows),)), torch.randn_like(clean)
                noisy, velocity = signal[t] * clean + noise_level[t] * noise, signal[t] * noise - noise_level[t] * clean
                loss = (weights[t] * F.mse_loss(model(noisy, t), velocity, reduction="none").mean((1, 2, 3))).mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                average.update()
            total += loss.detach()
            step += 1
            if step % 300 == 0:
                accelerator.print(f"step {step}: loss {total.item() / 300:.4f}", flush=True)
                total.zero_()
            diary.stepped()


if __name__ == "__main__":
    torch.set_num_threads(1)
    set_seed(18)
    main()
