"""An energy-based model of runes: Langevin chains from a replay buffer are its negatives. Nothing is planted."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, _ = begin()
torch.manual_seed(11)
torch.set_num_threads(1)

batch_size, chain_steps, step_size, noise_scale = 24, 8, 10.0, 0.005
buffer_size, restart, alpha = 1024, 0.05, 0.1
size = 20


def carve_runes(n):
    """Draw a stave, and up to three twigs at random heights; smooth and in [-1, 1]."""
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    image = torch.exp(-((x.expand(n, -1, -1)) ** 2) / 0.01)
    for _ in range(3):
        at, slope, side = torch.rand(3, n, 1, 1) * 2 - 1
        twig = torch.exp(-((y - at - slope * x.abs()) ** 2) / 0.01) * (x * side.sign() > 0)
        image = torch.maximum(image, twig * (torch.rand(n, 1, 1) < 0.8))
    return (image * 2 - 1).unsqueeze(1)


class Energy(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, 1, 1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 4, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 25, 64),
            nn.SiLU(),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def langevin(model, x):
    """Follow the gradient of the energy downwards, with noise."""
    model.requires_grad_(False)
    for _ in range(chain_steps):
        x = x + noise_scale * torch.randn_like(x)
        x.requires_grad_(True)
        (gradient,) = torch.autograd.grad(model(x).sum(), x)
        x = (x.detach() - step_size * gradient.clamp(-0.03, 0.03)).clamp(-1, 1)
    model.requires_grad_(True)
    return x


runes = carve_runes(4096)
buffer = torch.rand(buffer_size, 1, size, size) * 2 - 1
model = Energy()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.0, 0.999))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2000, gamma=0.97)
iteration = 0
averages = dict.fromkeys(("loss", "real", "fake"), 0.0)

while True:
    for chosen in torch.randperm(len(runes)).split(batch_size):
        real = runes[chosen]
        real = (real + 0.005 * torch.randn_like(real)).clamp(-1, 1)

        slots = torch.randperm(buffer_size)[: len(real)]
        start = buffer[slots]
        fresh = torch.rand(len(real)) < restart
        start[fresh] = torch.rand(int(fresh.sum()), 1, size, size) * 2 - 1
        fake = langevin(model, start)
        buffer[slots] = fake

        real_energy, fake_energy = model(torch.cat([real, fake])).split(len(real))
        contrast = real_energy.mean() - fake_energy.mean()
        loss = contrast + alpha * (real_energy.square() + fake_energy.square()).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        scheduler.step()

        iteration += 1
        if iteration % 10 == 0:
            for name, value in (("loss", loss), ("real", real_energy.mean()), ("fake", fake_energy.mean())):
                averages[name] = 0.9 * averages[name] + 0.1 * value.item()
        if iteration % 200 == 0:
            sharp = F.mse_loss(fake.abs(), torch.ones_like(fake)).item()
            words = " ".join(f"{name} {value:.4f}" for name, value in averages.items())
            print(f"iteration {iteration} {words} grayness {sharp:.3f}", flush=True)
        diary.stepped()
