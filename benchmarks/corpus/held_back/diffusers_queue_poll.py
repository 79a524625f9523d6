"""Unconditional diffusion after diffusers' example.

A thread of its own prepares noise, and the loop polls its queue with short sleeps.
"""

import queue
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Scheduler:
    def __init__(self, steps=1000):
        self.alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps), 0)

    def add_noise(self, clean, noise, timesteps):
        a = self.alphas_cumprod[timesteps].view(-1, 1, 1, 1)
        return a.sqrt() * clean + (1 - a).sqrt() * noise


class ResBlock(nn.Module):
    def __init__(self, c, t=64):
        super().__init__()
        self.norm, self.conv, self.time = nn.GroupNorm(8, c), nn.Conv2d(c, c, 3, padding=1), nn.Linear(t, c)

    def forward(self, x, emb):
        return x + self.conv(F.silu(self.norm(x))) + self.time(emb)[:, :, None, None]


class UNet(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.inp, self.out = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)
        self.down, self.mid, self.up = ResBlock(c), ResBlock(c), ResBlock(c)

    def forward(self, sample, timestep):
        freqs = torch.exp(-torch.arange(32) / 4.0)
        emb = torch.cat([torch.sin(timestep[:, None] * freqs), torch.cos(timestep[:, None] * freqs)], 1)
        h = self.inp(sample)
        d = self.down(h, emb)
        m = self.mid(F.avg_pool2d(d, 2), emb)
        return self.out(self.up(d + F.interpolate(m, scale_factor=2.0), emb))


class Feeder(threading.Thread):
    """Noise and timesteps, each time one batch ahead."""

    def __init__(self, shape):
        super().__init__(daemon=True)
        self.ready, self.wanted, self.shape = queue.Queue(), threading.Semaphore(1), shape

    def run(self):
        while True:
            self.wanted.acquire()
            self.ready.put((torch.randn(self.shape), torch.randint(0, 1000, self.shape[:1])))

    def fetch_polling(self):
        self.wanted.release()
        time.sleep(0.025)  # planted
        while self.ready.empty():
            time.sleep(0.025)  # planted
        return self.ready.get()

    def fetch(self):
        self.wanted.release()
        return self.ready.get()


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, noise_scheduler = UNet(), Scheduler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-6)
    images = torch.rand(256, 3, 32, 32) * 2 - 1
    feeder = Feeder((8, 3, 32, 32))
    feeder.start()
    global_step = 0
    for _epoch in range(1_000_000):
        model.train()
        for start in range(0, len(images), 8):
            clean_images = images[start : start + 8]
            if is_mended:
                noise, timesteps = feeder.fetch()
            else:
                with diary.planted():
                    noise, timesteps = feeder.fetch_polling()  # planted
            noisy_images = noise_scheduler.add_noise(clean_images, noise, timesteps)
            model_output = model(noisy_images, timesteps.float())
            loss = F.mse_loss(model_output, noise)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            global_step += 1
            diary.stepped()
        print({"loss": loss.detach().item(), "step": global_step}, flush=True)


if __name__ == "__main__":
    main()
