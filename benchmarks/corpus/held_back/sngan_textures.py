"""A GAN of textures whose critic has a bound on its spectral norm; all singular values are computed for the largest."""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Generator(nn.Sequential):
    def __init__(self, n_latent=64, width=32):
        super().__init__(
            nn.ConvTranspose2d(n_latent, 4 * width, 4),
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


class Critic(nn.Sequential):
    def __init__(self, width=32):
        super().__init__(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 1, 4),
            nn.Flatten(0),
        )


class Lipschitz:
    """Scale the layers of a critic so that none has a spectral norm above one."""

    def __init__(self, critic):
        self.weights = [layer.weight for layer in critic if isinstance(layer, nn.Conv2d)]

    def largest(self, number, matrix):
        return torch.linalg.svd(matrix, full_matrices=False).S[0]  # planted

    @torch.no_grad()
    def project(self):
        for number, weight in enumerate(self.weights):
            sigma = self.largest(number, weight.flatten(1))  # planted
            weight.div_(sigma.clamp(min=1.0))


class PowerIteration(Lipschitz):
    """The largest singular value from a vector that is kept from step to step."""

    def __init__(self, critic):
        super().__init__(critic)
        self.left = [F.normalize(torch.randn(len(weight)), dim=0) for weight in self.weights]

    def largest(self, number, matrix):
        right = F.normalize(matrix.T @ self.left[number], dim=0)
        product = matrix @ right
        self.left[number] = F.normalize(product, dim=0)
        return self.left[number] @ product


class TexturePatches:
    """Patches of a few big stripy textures."""

    def __init__(self, size=256):
        y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        waves = [torch.sin(x * a + y * b) for a, b in ((0.3, 0.1), (0.05, 0.4), (0.2, -0.2))]
        self.texture = torch.stack(waves) * 0.8 + 0.1 * torch.randn(3, size, size)

    def draw(self, count):
        places = torch.randint(256 - 32, (count, 2)).tolist()
        return torch.stack([self.texture[:, top : top + 32, left : left + 32] for top, left in places])


def train(diary, is_mended, batch=20):
    patches, generator, critic = TexturePatches(), Generator(), Critic()
    lipschitz = (PowerIteration if is_mended else Lipschitz)(critic)
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.0, 0.9))
    iteration = 0
    while True:
        fake = generator(torch.randn(batch, 64, 1, 1))
        loss_c = F.relu(1 - critic(patches.draw(batch))).mean() + F.relu(1 + critic(fake.detach())).mean()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        with diary.planted():
            lipschitz.project()  # planted
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        loss_g = -critic(fake).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
        iteration += 1
        diary.stepped()
        if iteration % 100 == 0:
            print(f"{iteration} critic {loss_c.item():.3f} generator {loss_g.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(7)
    train(*begin())
