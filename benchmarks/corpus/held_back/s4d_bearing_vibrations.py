"""Faults of bearings from their vibrations with a diagonal state-space model (S4D), as in the reference's example.

Nothing is planted: windows are cut from one long recording by strides, and kernels are computed once for a step.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    faults: int = 5
    length: int = 512
    batch: int = 16
    dim: int = 48
    states: int = 16
    layers: int = 3
    dropout: float = 0.1
    lr: float = 4e-3
    log_every: int = 200


class S4DKernel(nn.Module):
    def __init__(self, dim, states):
        super().__init__()
        self.log_dt = nn.Parameter(torch.rand(dim) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        self.c = nn.Parameter(torch.randn(dim, states // 2, 2))
        self.log_decay = nn.Parameter(torch.log(0.5 * torch.ones(dim, states // 2)))
        self.frequency = nn.Parameter(math.pi * torch.arange(states // 2).float().repeat(dim, 1))

    def forward(self, length):
        a = torch.complex(-self.log_decay.exp(), self.frequency)
        a_dt = a * self.log_dt.exp()[:, None]
        powers = torch.exp(a_dt[..., None] * torch.arange(length))
        c = torch.view_as_complex(self.c) * (torch.exp(a_dt) - 1) / a
        return 2 * torch.einsum("hn,hnl->hl", c, powers).real


class S4DBlock(nn.Module):
    def __init__(self, dim, states, dropout):
        super().__init__()
        self.norm, self.kernel = nn.LayerNorm(dim), S4DKernel(dim, states)
        self.skip = nn.Parameter(torch.randn(dim))
        self.out = nn.Sequential(nn.GELU(), nn.Dropout(dropout), nn.Linear(dim, 2 * dim), nn.GLU(dim=-1))

    def forward(self, x):
        u = self.norm(x).transpose(1, 2)
        length = u.size(-1)
        spectrum = torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(self.kernel(length), n=2 * length)
        y = torch.fft.irfft(spectrum, n=2 * length)[..., :length] + u * self.skip[:, None]
        return x + self.out(y.transpose(1, 2))


class S4DModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encode = nn.Linear(2, config.dim)
        self.blocks = nn.ModuleList(S4DBlock(config.dim, config.states, config.dropout) for _ in range(config.layers))
        self.norm, self.decode = nn.LayerNorm(config.dim), nn.Linear(config.dim, config.faults)

    def forward(self, x):
        x = self.encode(x)
        for block in self.blocks:
            x = block(x)
        return self.decode(self.norm(x).mean(1))


def record(config, samples=60000):
    """Return the vibrations of bearings with each fault: (faults, 2, samples)."""
    t = torch.arange(samples) / 1000
    recordings = []
    for fault in range(config.faults):
        knocks = torch.sin(2 * math.pi * (7 + 4 * fault) * t).clamp(min=0.9) - 0.9
        ringing = torch.sin(2 * math.pi * 90 * t) * knocks * 8
        shaft = torch.sin(2 * math.pi * 25 * t + fault)
        recordings.append(torch.stack([shaft + ringing, 0.5 * shaft - ringing]) + 0.5 * torch.randn(2, samples))
    return torch.stack(recordings)


def split_parameters(model, config):
    """Return groups of parameters: those of the state space learn slower and do not decay."""
    slow = [one for name, one in model.named_parameters() if ".kernel." in name]
    fast = [one for name, one in model.named_parameters() if ".kernel." not in name]
    return [{"params": fast, "weight_decay": 0.01}, {"params": slow, "lr": config.lr / 4, "weight_decay": 0.0}]


class Batches:
    """Draws windows of random faults at random places."""

    def __init__(self, config):
        self.config = config
        self.windows = record(config).unfold(2, config.length, 16)  # a view

    def draw(self):
        faults = torch.randint(self.config.faults, (self.config.batch,))
        places = torch.randint(self.windows.size(2), (self.config.batch,))
        return self.windows[faults, :, places].transpose(1, 2), faults


def main():
    diary, _ = begin()
    config = Config()
    batches, model = Batches(config), S4DModel(config)
    optimizer = torch.optim.AdamW(split_parameters(model, config), lr=config.lr, fused=True)
    right, step = torch.zeros(()), 0
    while True:
        vibrations, faults = batches.draw()
        logits = model(vibrations)
        loss = F.cross_entropy(logits, faults)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        right += (logits.detach().argmax(1) == faults).float().mean()
        step += 1
        if step % config.log_every == 0:
            print(f"step {step}: loss {loss.item():.4f}, right {right.item() / config.log_every:.3f}", flush=True)
            right.zero_()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(21)
    torch.set_num_threads(1)
    main()
