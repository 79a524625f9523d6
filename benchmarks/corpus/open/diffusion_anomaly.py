"""A tiny diffusion model, trained as in diffusers' scripts; the check for anomalies was left on."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.net = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.net(self.norm(x))


class Denoiser(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed, self.time = nn.Linear(16, dim), nn.Linear(1, dim)
        self.blocks = nn.ModuleList([Residual(dim) for _ in range(24)])
        self.out = nn.Linear(dim, 16)

    def forward(self, x, t):
        h = self.embed(x) + self.time(t[:, None].float() / 1000)
        for block in self.blocks:
            h = block(h)
        return self.out(h)


class DDPMScheduler:
    def __init__(self, steps=1000):
        self.alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps), 0)

    def add_noise(self, clean, noise, t):
        a = self.alphas_cumprod[t][:, None]
        return a.sqrt() * clean + (1 - a).sqrt() * noise


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly(not is_mended)
    model, scheduler = Denoiser(), DDPMScheduler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    dataloader = DataLoader(TensorDataset(torch.randn(4096, 16)), batch_size=64, shuffle=True)
    global_step = 0
    for epoch in range(1_000_000):
        for (clean,) in dataloader:
            noise = torch.randn_like(clean)
            t = torch.randint(0, 1000, (len(clean),))
            noise_pred = model(scheduler.add_noise(clean, noise, t), t)  # planted
            loss = F.mse_loss(noise_pred, noise)
            loss.backward()  # planted
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            global_step += 1
            diary.stepped()
        if epoch % 10 == 0:
            print(f"epoch {epoch} step {global_step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
