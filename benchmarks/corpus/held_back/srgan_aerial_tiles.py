"""Aerial tiles made four times as large by an SRGAN, in the style of its PyTorch ports: pixels, features, and a critic.

Nothing is planted: tiles are cut by slices, the large ones are looked at without gradients by the feature network.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

MAPS, MAP_SIDE, TILE, UPSCALE, BATCH = 16, 192, 48, 4, 8


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.PReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x):
        return x + self.body(x)


class Generator(nn.Module):
    def __init__(self, width=32, blocks=4):
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(3, width, 5, padding=2), nn.PReLU())
        self.trunk = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.upsample = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(),
            nn.Conv2d(width, 64, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(), nn.Conv2d(16, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, x):
        shallow = self.head(x)
        return torch.sigmoid(self.upsample(shallow + self.trunk(shallow)))


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layers, inputs = [], 3
        for outputs, stride in ((width, 2), (2 * width, 2), (4 * width, 2), (4 * width, 1)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.LeakyReLU(0.2)]
            inputs = outputs
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(inputs * 9, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


class FeatureLoss(nn.Module):
    """Compare features of a fixed network, here an untrained one, as nothing may be downloaded."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1)
        )
        self.requires_grad_(False)

    def forward(self, fake, real):
        with torch.no_grad():
            goal = self.net(real)
        return F.mse_loss(self.net(fake), goal)


def make_maps():
    coarse = torch.rand(MAPS, 3, MAP_SIDE // 6, MAP_SIDE // 6)
    maps = F.interpolate(coarse, size=MAP_SIDE, mode="bicubic", align_corners=False)
    return (maps + 0.05 * torch.randn_like(maps)).clamp(0, 1)


def tiles(maps):
    """Yield small and large tiles for ever; the small maps are made once, and cut at the same places."""
    small_maps = F.interpolate(maps, scale_factor=1 / UPSCALE, mode="bicubic", antialias=True).clamp(0, 1)
    side = TILE // UPSCALE
    while True:
        places = torch.stack(
            [torch.randint(MAPS, (BATCH,)), *torch.randint((MAP_SIDE - TILE) // UPSCALE, (2, BATCH))], dim=1
        )
        small, large = [], []
        for number, row, column in places.tolist():
            small.append(small_maps[number, :, row : row + side, column : column + side])
            top, left = row * UPSCALE, column * UPSCALE
            large.append(maps[number, :, top : top + TILE, left : left + TILE])
        yield torch.stack(small), torch.stack(large)


def main():
    diary, _ = begin()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    generator, discriminator, features = Generator(), Discriminator(), FeatureLoss()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.9, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-4, betas=(0.9, 0.999))
    for step, (small, large) in enumerate(tiles(make_maps()), start=1):
        fake = generator(small)

        discriminator.requires_grad_(True)
        real_score, fake_score = discriminator(large), discriminator(fake.detach())
        d_loss = F.softplus(-real_score).mean() + F.softplus(fake_score).mean()
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()

        discriminator.requires_grad_(False)
        pixel_loss = F.mse_loss(fake, large)
        g_loss = pixel_loss + 0.05 * features(fake, large) + 1e-3 * F.softplus(-discriminator(fake)).mean()
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()

        if step % 50 == 0:
            psnr = -10 * pixel_loss.detach().log10()
            print(
                f"[{step}] Loss_D: {d_loss.item():.4f} Loss_G: {g_loss.item():.4f} PSNR: {psnr.item():.2f}", flush=True
            )
        diary.stepped()


if __name__ == "__main__":
    main()
