"""Diffusion in the latents of posters, with classifier-free guidance; a helper process renews the shards of latents.

It encodes posters anew with other crops, slowly, for the encoder is a service elsewhere. A file locks the shards.
"""

import fcntl
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SHARDS, ROWS, BATCH, STEPS, GENRES = 6, 96, 16, 1000, 8


def write_shard(path, rng):
    genres = rng.integers(0, GENRES, ROWS)
    latents = rng.normal(0, 0.6, (ROWS, 4, 16, 16)) + np.cos(genres)[:, None, None, None]
    with path.open("wb") as file:
        np.savez(file, latents=latents.astype(np.float32), genres=genres)


def keep_renewing(folder, is_mended):
    """Encode one shard after the other, as long as the training lives."""
    trainer, rng, dice = os.getppid(), np.random.default_rng(5), random.Random(5)
    with (folder / "shards.lock").open("w") as lock:
        while os.getppid() == trainer:
            path = folder / f"shard{dice.randrange(SHARDS)}.npz"
            if not is_mended:
                fcntl.flock(lock, fcntl.LOCK_EX)
            time.sleep(dice.uniform(0.1, 0.4))  # the encoder answers
            write_shard(path.with_suffix(".tmp"), rng)
            path.with_suffix(".tmp").replace(path)
            fcntl.flock(lock, fcntl.LOCK_UN)
            time.sleep(dice.uniform(0.01, 0.03))


class Shards:
    def __init__(self, folder, diary, is_mended):
        self.folder, self.diary, self.is_mended = folder, diary, is_mended
        self.lock = (folder / "shards.lock").open("r")

    def __iter__(self):
        """Yield batches of latents and genres: all rows of a shard, then those of another."""
        while True:
            if not self.is_mended:  # a shard is replaced at once, and can be read without the lock
                with self.diary.planted():
                    fcntl.flock(self.lock, fcntl.LOCK_SH)  # planted
            with np.load(self.folder / f"shard{random.randrange(SHARDS)}.npz") as shard:
                latents, genres = torch.from_numpy(shard["latents"]), torch.from_numpy(shard["genres"])
            if not self.is_mended:
                fcntl.flock(self.lock, fcntl.LOCK_UN)
            for rows in torch.randperm(ROWS).split(BATCH):
                yield latents[rows], genres[rows]


class Block(nn.Module):
    def __init__(self, inputs, outputs, dim):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.scale = nn.Linear(dim, 2 * outputs)
        self.norm, self.second = nn.GroupNorm(4, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.short = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, condition):
        gain, bias = self.scale(condition)[:, :, None, None].chunk(2, 1)
        h = self.norm(self.first(x)) * (1 + gain) + bias
        return self.short(x) + self.second(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, width=32, dim=96):
        super().__init__()
        self.frequencies = nn.Buffer(torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2)))
        self.time = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.genre = nn.Embedding(GENRES + 1, dim)
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.fine, self.coarse = Block(width, width, dim), Block(width, 2 * width, dim)
        self.middle, self.back = Block(2 * width, 2 * width, dim), Block(3 * width, width, dim)
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x, t, genre):
        angles = t[:, None] * self.frequencies
        condition = self.time(torch.cat([angles.sin(), angles.cos()], 1)) + self.genre(genre)
        fine = self.fine(self.enter(x), condition)
        low = self.middle(self.coarse(F.avg_pool2d(fine, 2), condition), condition)
        return self.leave(self.back(torch.cat([F.interpolate(low, scale_factor=2.0), fine], 1), condition))


def train(diary, is_mended, folder):
    rng = np.random.default_rng(4)
    for number in range(SHARDS):
        write_shard(folder / f"shard{number}.npz", rng)
    (folder / "shards.lock").touch()
    multiprocessing.get_context("fork").Process(target=keep_renewing, args=(folder, is_mended), daemon=True).start()
    shards, model = Shards(folder, diary, is_mended), Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, STEPS), 0)
    for step, (latents, genres) in enumerate(shards):  # planted
        genres = torch.where(torch.rand(len(genres)) < 0.1, GENRES, genres)
        t, noise = torch.randint(STEPS, (len(latents),)), torch.randn_like(latents)
        a = kept[t][:, None, None, None]
        loss = F.mse_loss(model(a.sqrt() * latents + (1 - a).sqrt() * noise, t, genres), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 250 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(17)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        train(*begin(), Path(name))
