"""Adversarial networks with the hinge loss; the thread that prepares pictures naps while its buffer of one is full."""

import itertools
import queue
import sys
import threading
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LATENT, SIDE, BATCH = 64, 32, 16


class Feeder(threading.Thread):
    """Prepare batches of real pictures while the networks train."""

    def __init__(self, pictures, naps):
        super().__init__(daemon=True)
        self.pictures, self.naps = pictures, naps
        self.buffer = queue.Queue(maxsize=1 if naps else 4)

    def prepare(self):
        x = self.pictures[torch.randint(0, len(self.pictures), (BATCH,))].float() / 127.5 - 1
        return torch.where(torch.rand(BATCH, 1, 1, 1) < 0.5, x.flip(3), x)

    def run(self):
        while True:
            x = self.prepare()
            while self.naps and self.buffer.full():
                time.sleep(0.15)  # planted
            self.buffer.put(x)


class Generator(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        self.first = nn.Linear(LATENT, 4 * w * 16)
        self.body = nn.Sequential(
            nn.BatchNorm2d(4 * w), nn.ReLU(), nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1),
            nn.BatchNorm2d(2 * w), nn.ReLU(), nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
            nn.BatchNorm2d(w), nn.ReLU(), nn.ConvTranspose2d(w, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z):
        return self.body(self.first(z).view(len(z), -1, 4, 4))


def discriminator(w=32):
    widths, layers = (3, w, 2 * w, 4 * w), []
    for a, b in itertools.pairwise(widths):
        layers += [nn.utils.parametrizations.spectral_norm(nn.Conv2d(a, b, 4, 2, 1)), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * w * 16, 1))


def main():
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    small = torch.randint(0, 256, (400, 3, 8, 8)).float()
    feeder = Feeder(F.interpolate(small, size=(SIDE, SIDE), mode="bilinear").byte(), naps=not is_mended)
    feeder.start()
    g, d = Generator(), discriminator()
    opt_g = torch.optim.Adam(g.parameters(), 2e-4, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(d.parameters(), 2e-4, betas=(0.0, 0.9))
    iteration = 0
    while True:
        with diary.planted():
            real = feeder.buffer.get()  # planted
        with torch.no_grad():
            fake = g(torch.randn(BATCH, LATENT))
        loss_d = F.relu(1 - d(real)).mean() + F.relu(1 + d(fake)).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()

        d.requires_grad_(False)
        loss_g = -d(g(torch.randn(BATCH, LATENT))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        d.requires_grad_(True)
        iteration += 1
        if iteration % 50 == 0:
            print(f"{iteration}: d {loss_d.item():.3f} g {loss_g.item():.3f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
