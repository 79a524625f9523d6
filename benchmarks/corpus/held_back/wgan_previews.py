"""A Wasserstein GAN with clipped weights, at the top level of a script; samples are saved as a picture."""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torchvision.utils import save_image

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
torch.manual_seed(4)
torch.set_num_threads(1)

latent_dim, batch_size, n_critic, clip_value = 32, 16, 2, 0.01
sample_interval = 500 if is_mended else 1
out = Path(tempfile.mkdtemp()) / "samples"
out.mkdir()


class Generator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width = width
        self.project = nn.Linear(latent_dim, 4 * width * 8 * 8)
        self.layers = nn.Sequential(
            nn.BatchNorm2d(4 * width),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, stride=2, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, 3, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.layers(self.project(z).view(-1, 4 * self.width, 8, 8))


class Critic(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2, True),
            nn.Flatten(),
            nn.Linear(2 * width * 8 * 8, 1),
        )

    def forward(self, images):
        return self.layers(images)


def sample_images(generator, noise, batches_done):
    """Save a grid of generated images."""
    generator.eval()
    with torch.no_grad():
        pictures = generator(noise)  # planted
    generator.train()
    save_image(pictures, out / f"{batches_done % 50:03d}.png", nrow=6, normalize=True)  # planted


generator, critic = Generator(), Critic()
optimizer_g = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
optimizer_d = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
real_images = torch.rand(512, 3, 32, 32) * 2 - 1
fixed_noise = torch.randn(36, latent_dim)

batches_done = 0
while True:
    for _ in range(n_critic):
        real = real_images[torch.randint(len(real_images), (batch_size,))]
        fake = generator(torch.randn(batch_size, latent_dim)).detach()
        optimizer_d.zero_grad()
        loss_d = critic(fake).mean() - critic(real).mean()
        loss_d.backward()
        optimizer_d.step()
        with torch.no_grad():
            for p in critic.parameters():
                p.clamp_(-clip_value, clip_value)

    optimizer_g.zero_grad()
    loss_g = -critic(generator(torch.randn(batch_size, latent_dim))).mean()
    loss_g.backward()
    optimizer_g.step()

    if batches_done % sample_interval == 0:
        with diary.planted():
            sample_images(generator, fixed_noise, batches_done)  # planted
    if batches_done % 200 == 0:
        print(f"[batch {batches_done}] [D {loss_d.item():.4f}] [G {loss_g.item():.4f}]", flush=True)
    batches_done += 1
    diary.stepped()
