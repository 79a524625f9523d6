"""A DCGAN with hinge loss on tiles of mosaics, whose Fréchet distance to held-out tiles is watched."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIZE, LATENT, EVERY = 32, 64, 10


def make_tiles(count):
    """Return tiles of mosaics: small stones of two colours under a pattern that repeats."""
    ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    stones = (ys // 4 * torch.randint(1, 5, (count, 1, 1)) + xs // 4 * torch.randint(1, 5, (count, 1, 1))) % 3
    colours = torch.rand(count, 3, 3)
    tiles = colours[torch.arange(count)[:, None, None], stones].permute(0, 3, 1, 2)
    grout = ((ys % 4 == 0) | (xs % 4 == 0)).float() * 0.4
    return (tiles * 2 - 1 - grout).clamp(-1, 1)


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.width = width
        self.start = nn.Linear(LATENT, 4 * width * 16)
        self.net = nn.Sequential(
            nn.BatchNorm2d(4 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(self.start(z).view(-1, 4 * self.width, 4, 4))


def make_critic(width=24):
    return nn.Sequential(
        spectral_norm(nn.Conv2d(3, width, 4, 2, 1)),
        nn.LeakyReLU(0.2),
        spectral_norm(nn.Conv2d(width, 2 * width, 4, 2, 1)),
        nn.LeakyReLU(0.2),
        spectral_norm(nn.Conv2d(2 * width, 4 * width, 4, 2, 1)),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        spectral_norm(nn.Linear(4 * width * 16, 1)),
    )


class FrechetDistance:
    """The distance between Gaussians that are fitted to features of real and of made tiles."""

    def __init__(self, real, dim=48):
        self.real = real
        self.extractor = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(24, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, dim, 3, 2, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ).eval()

    def statistics(self, images):
        features = torch.cat([self.extractor(some) for some in images.split(128)])  # planted
        return features.mean(0), features.T.cov()

    def real_statistics(self):
        return self.statistics(self.real)  # planted

    def distance(self, real, made):
        (mean_a, cov_a), (mean_b, cov_b) = real, made
        values, vectors = torch.linalg.eigh(cov_a)
        root = vectors * values.clamp(min=0).sqrt() @ vectors.T
        cross = torch.linalg.eigvalsh(root @ cov_b @ root).clamp(min=0).sqrt().sum()
        return (mean_a - mean_b).pow(2).sum() + cov_a.trace() + cov_b.trace() - 2 * cross


def train(diary, is_mended, batch=32):
    tiles, held_out = make_tiles(4096), make_tiles(6144)
    generator, critic, frechet = Generator(), make_critic(), FrechetDistance(held_out)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.0, 0.9), fused=True)
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.0, 0.9), fused=True)
    fixed, best = torch.randn(64, LATENT), torch.tensor(torch.inf)
    with torch.no_grad():
        known = frechet.real_statistics() if is_mended else None
    step = 0
    while True:
        real = tiles[torch.randint(len(tiles), (batch,))]
        made = generator(torch.randn(batch, LATENT))
        scores = critic(torch.cat([real, made.detach()]))
        loss_d = F.relu(1 - scores[:batch]).mean() + F.relu(1 + scores[batch:]).mean()
        optimizer_d.zero_grad()
        loss_d.backward()
        optimizer_d.step()

        loss_g = -critic(made).mean()
        optimizer_g.zero_grad()
        loss_g.backward()
        optimizer_g.step()

        if step % EVERY == 0:
            with torch.no_grad():
                if is_mended:
                    reference = known
                else:
                    with diary.planted():
                        reference = frechet.real_statistics()  # planted
                distance = frechet.distance(reference, frechet.statistics(generator(fixed)))
                best = torch.minimum(best, distance)
        if step % 240 == 0:
            print(
                f"step {step}: critic {loss_d.item():.3f} distance {distance.item():.4f} best {best.item():.4f}",
                flush=True,
            )
        step += 1
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(15)
    torch.set_num_threads(1)
    train(*begin())
