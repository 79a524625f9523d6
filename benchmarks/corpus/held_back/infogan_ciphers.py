"""InfoGAN on cipher signs, with codes of a class and of two slants. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NOISE, CLASSES, SLANTS, BATCH = 48, 10, 2, 32


def signs(count):
    """Draw crossed bars of ten angles."""
    axis = torch.linspace(-1, 1, 32)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle = torch.randint(CLASSES, (count, 1, 1)) * 0.314 + 0.05 * torch.randn(count, 1, 1)
    shift = 0.3 * torch.rand(count, 1, 1)
    bar = (torch.cos(angle) * x + torch.sin(angle) * y - shift).abs() < 0.15
    cross = (torch.sin(angle) * x - torch.cos(angle) * y + shift).abs() < 0.08
    return (bar | cross).float().mul(2).sub(1).unsqueeze(1)


def weights(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)


def make_generator():
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE + CLASSES + SLANTS, 128, 4),
        nn.BatchNorm2d(128),
        nn.ReLU(True),
        nn.ConvTranspose2d(128, 64, 4, 2, 1),
        nn.BatchNorm2d(64),
        nn.ReLU(True),
        nn.ConvTranspose2d(64, 32, 4, 2, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(True),
        nn.ConvTranspose2d(32, 1, 4, 2, 1),
        nn.Tanh(),
    )


class Critic(nn.Module):
    """A shared trunk, with a head that judges and one that guesses the codes."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(64, 128, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(2048, 128),
            nn.LeakyReLU(0.1),
        )
        self.judge = nn.Linear(128, 1)
        self.guess = nn.Linear(128, CLASSES + SLANTS)

    def forward(self, images):
        h = self.trunk(images)
        codes = self.guess(h)
        return self.judge(h).squeeze(1), codes[:, :CLASSES], codes[:, CLASSES:]


def draw():
    kind = torch.randint(CLASSES, (BATCH,))
    slant = torch.rand(BATCH, SLANTS) * 2 - 1
    z = torch.cat([torch.randn(BATCH, NOISE), F.one_hot(kind, CLASSES).float(), slant], 1)
    return z.view(BATCH, -1, 1, 1), kind, slant


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = signs(2048)
    net_g, net_d = make_generator(), Critic()
    net_g.apply(weights)
    net_d.apply(weights)
    opt_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_g = torch.optim.Adam([*net_g.parameters(), *net_d.guess.parameters()], lr=1e-3, betas=(0.5, 0.999))
    ones, zeros = torch.ones(BATCH), torch.zeros(BATCH)
    for step in range(1_000_000_000):
        z, kind, slant = draw()
        fake = net_g(z)
        real = data[torch.randint(len(data), (BATCH,))]
        opt_d.zero_grad()
        judged_real, judged_fake = net_d(real)[0], net_d(fake.detach())[0]
        loss_d = F.binary_cross_entropy_with_logits(judged_real, ones)
        loss_d = loss_d + F.binary_cross_entropy_with_logits(judged_fake, zeros)
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        judged, kinds, slants = net_d(fake)
        loss_g = F.binary_cross_entropy_with_logits(judged, ones)
        information = F.cross_entropy(kinds, kind) + 0.1 * F.mse_loss(slants, slant)
        (loss_g + information).backward()
        opt_g.step()
        diary.stepped()
        if step % 200 == 0:
            print(f"{step} d {loss_d.item():.3f} g {loss_g.item():.3f} info {information.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
