"""A GAN of kimono patterns whose critic also sees fakes of earlier steps, kept in one tensor that is rolled on."""

import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIZE, LATENT, BATCH = 48, 32, 8


def patterns(count):
    """Draw stripes and checks in two colours."""
    axis = torch.linspace(0, 6.28, SIZE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    turn = torch.rand(count, 1, 1) * 3.14
    wave = torch.sin(3 * (turn.cos() * x + turn.sin() * y)) * torch.cos(2 * (turn.cos() * y - turn.sin() * x))
    first, second = torch.rand(2, count, 3, 1, 1) * 2 - 1
    return torch.where(wave.unsqueeze(1) > 0, first, second)


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.project = nn.Linear(LATENT, width * 4 * 6 * 6)
        self.blocks = nn.Sequential(
            nn.ConvTranspose2d(width * 4, width * 2, 4, 2, 1),
            nn.BatchNorm2d(width * 2),
            nn.ReLU(),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.blocks(self.project(z).view(len(z), -1, 6, 6))


def critic(width=24):
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, width * 2, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width * 2, width * 4, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(width * 4 * 6 * 6, 1),
    )


class RolledHistory:
    """The last fakes; half of what is asked for is of earlier steps."""

    def __init__(self, size):
        self.images = torch.zeros(size, 3, SIZE, SIZE)

    def exchange(self, fakes):
        chosen = []
        for fake in fakes:
            self.images = torch.cat([self.images[1:], fake.unsqueeze(0)])  # planted
            chosen.append(self.images[random.randrange(len(self.images))] if random.random() < 0.5 else fake)
        return torch.stack(chosen)


class RingHistory(RolledHistory):
    def __init__(self, size):
        super().__init__(size)
        self.next = 0

    def exchange(self, fakes):
        chosen = []
        for fake in fakes:
            self.images[self.next] = fake
            self.next = (self.next + 1) % len(self.images)
            chosen.append(self.images[random.randrange(len(self.images))] if random.random() < 0.5 else fake)
        return torch.stack(chosen)


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    real_images = patterns(1024)
    net_g, net_d = Generator(), critic()
    opt_g = torch.optim.Adam(net_g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    history = RingHistory(256) if is_mended else RolledHistory(256)
    for step in range(1_000_000_000):
        real = real_images[torch.randint(len(real_images), (BATCH,))]
        fake = net_g(torch.randn(BATCH, LATENT))
        if is_mended:
            shown = history.exchange(fake.detach())
        else:
            with diary.planted():
                shown = history.exchange(fake.detach())  # planted
        loss_d = F.softplus(-net_d(real)).mean() + F.softplus(net_d(shown)).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        loss_g = F.softplus(-net_d(fake)).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        diary.stepped()
        if step % 100 == 0:
            print(f"step {step} d {loss_d.item():.3f} g {loss_g.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
