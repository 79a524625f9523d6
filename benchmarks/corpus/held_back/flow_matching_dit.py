"""Flow matching with a small diffusion transformer, with a trainer that has hooks and average weights.

Nothing is planted: averages are one call, samples are drawn every 400 steps, weights are saved every three minutes.
"""

import math
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Settings:
    side: int = 32
    patch: int = 4
    width: int = 144
    depth: int = 4
    heads: int = 4
    classes: int = 10
    batch: int = 12
    lr: float = 3e-4
    sample_every: int = 400
    save_seconds: float = 180.0
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="flow_")))


class AdaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, w = s.heads, s.width
        self.n1, self.n2 = (nn.LayerNorm(w, elementwise_affine=False) for _ in range(2))
        self.qkv, self.proj = nn.Linear(w, 3 * w), nn.Linear(w, w)
        self.mlp = nn.Sequential(nn.Linear(w, 4 * w), nn.GELU(approximate="tanh"), nn.Linear(4 * w, w))
        self.modulate = nn.Linear(w, 6 * w)
        nn.init.zeros_(self.modulate.weight), nn.init.zeros_(self.modulate.bias)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.modulate(c)[:, None].chunk(6, 2)
        n, t, w = x.shape
        q, k, v = self.qkv(self.n1(x) * (1 + s1) + b1).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, w)
        x = x + g1 * self.proj(y)
        return x + g2 * self.mlp(self.n2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, grid = s, s.side // s.patch
        self.into = nn.Conv2d(3, s.width, s.patch, s.patch)
        self.place = nn.Parameter(0.02 * torch.randn(1, grid * grid, s.width))
        self.label = nn.Embedding(s.classes + 1, s.width)
        self.register_buffer("rates", torch.exp(-math.log(1e4) * torch.arange(32) / 32))
        self.time = nn.Sequential(nn.Linear(64, s.width), nn.SiLU(), nn.Linear(s.width, s.width))
        self.blocks = nn.ModuleList(AdaBlock(s) for _ in range(s.depth))
        self.out = nn.Linear(s.width, 3 * s.patch**2)

    def forward(self, x, t, y):
        angles = 1000 * t[:, None] * self.rates
        c = F.silu(self.time(torch.cat([angles.cos(), angles.sin()], 1)) + self.label(y))
        h = self.into(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            h = block(h, c)
        return F.fold(self.out(h).transpose(1, 2), self.s.side, self.s.patch, stride=self.s.patch)


class Trainer:
    def __init__(self, s, diary):
        self.s, self.diary, self.step, self.saved = s, diary, 0, time.monotonic()
        self.model = DiT(s)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), s.lr, weight_decay=0.0, foreach=True)
        self.hooks = [self.report, self.sample, self.save]

    def loss(self, x, y):
        t = torch.sigmoid(torch.randn(len(x)))
        noise = torch.randn_like(x)
        at = t.view(-1, 1, 1, 1)
        y = torch.where(torch.rand(len(y)) < 0.1, self.s.classes, y)
        return F.mse_loss(self.model((1 - at) * noise + at * x, t, y), x - noise)

    def report(self, loss):
        if self.step % 50 == 0:
            print(f"step {self.step} loss {loss.item():.4f}", flush=True)

    @torch.inference_mode()
    def sample(self, _, steps=12):
        if self.step % self.s.sample_every == 0:
            x = torch.randn(8, 3, self.s.side, self.s.side)
            for i in range(steps):
                x = x + self.average(x, torch.full((8,), i / steps), torch.arange(8)) / steps
            print(f"samples: mean {x.mean():.3f} deviation {x.std():.3f}", flush=True)

    def save(self, _):
        if time.monotonic() - self.saved > self.s.save_seconds:
            torch.save(self.average.state_dict(), self.s.folder / "average.pt")
            self.saved = time.monotonic()

    def fit(self, images, labels):
        while True:
            for rows in torch.randperm(len(images)).split(self.s.batch):
                loss = self.loss(images[rows], labels[rows])
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.average.update_parameters(self.model)
                self.step += 1
                for hook in self.hooks:
                    hook(loss)
                self.diary.stepped()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(23)
    settings = Settings()
    pictures = F.interpolate(torch.randn(480, 3, 4, 4), size=(32, 32), mode="bicubic")
    Trainer(settings, begin()[0]).fit(pictures, torch.arange(480) % settings.classes)
