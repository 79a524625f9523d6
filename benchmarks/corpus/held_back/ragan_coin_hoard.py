"""Coins drawn by a relativistic average GAN, in the style of eriklindernoren's one-file GANs, with a log of statistics.

After each step the histograms of all weights and gradients are written to the log.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

COINS, SIDE, LATENT, BATCH = 4096, 32, 64, 16
LOG_LIMIT = 4_000_000


def strike_coins():
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    radius, angle = (rows**2 + columns**2).sqrt(), torch.atan2(rows, columns)
    size = torch.rand(COINS, 1, 1) * 0.3 + 0.6
    spokes = torch.randint(3, 9, (COINS, 1, 1))
    relief = torch.cos(spokes * angle + torch.rand(COINS, 1, 1) * 6) * torch.cos(9 * radius / size)
    coins = torch.where(radius < size, 0.3 + 0.5 * relief, -1.0)
    return (coins + 0.05 * torch.randn(COINS, SIDE, SIDE)).clamp(-1, 1).unsqueeze(1)


def weights_init_normal(module):
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(LATENT, 128 * 8 * 8)
        self.conv_blocks = nn.Sequential(
            nn.BatchNorm2d(128), nn.Upsample(scale_factor=2),
            nn.Conv2d(128, 32, 3, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.2, inplace=True),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(32, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(16, 1, 3, padding=1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z):
        return self.conv_blocks(self.l1(z).view(len(z), 128, 8, 8))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [], 1
        for outputs in (16, 32, 64, 128):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
            inputs = outputs
        self.model = nn.Sequential(*layers)
        self.adv_layer = nn.Linear(128 * 4, 1)

    def forward(self, img):
        return self.adv_layer(self.model(img).flatten(1))


class StatisticsLog:
    """Lines of JSON; begun anew when it is long."""

    def __init__(self, path):
        self.file = path.open("w")

    def write(self, step, networks):
        record = {"step": step}
        for network, module in networks.items():
            for name, weight in module.named_parameters():
                for kind, values in (("weight", weight.detach()), ("grad", weight.grad)):
                    counts, edges = np.histogram(values.numpy(), bins=40)  # planted
                    record[f"{network}.{name}.{kind}"] = {
                        "counts": counts.tolist(),
                        "low": float(edges[0]),
                        "high": float(edges[-1]),
                    }
        if self.file.tell() > LOG_LIMIT:
            self.file.seek(0)
            self.file.truncate()
        self.file.write(json.dumps(record) + "\n")  # planted


diary, is_mended = begin()
torch.manual_seed(12)
torch.set_num_threads(1)
folder = tempfile.TemporaryDirectory()
statistics_log = StatisticsLog(Path(folder.name) / "statistics.jsonl")
coins = strike_coins()
generator, discriminator = Generator(), Discriminator()
generator.apply(weights_init_normal)
discriminator.apply(weights_init_normal)
adversarial_loss = nn.BCEWithLogitsLoss()
optimizer_G = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
valid, fake = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
batches_done = 0

while True:
    for chosen in torch.randperm(COINS).split(BATCH)[: COINS // BATCH]:
        real_imgs = coins[chosen]

        optimizer_G.zero_grad()
        gen_imgs = generator(torch.randn(BATCH, LATENT))
        with torch.no_grad():
            real_pred = discriminator(real_imgs)
        fake_pred = discriminator(gen_imgs)
        g_loss = adversarial_loss(fake_pred - real_pred.mean(0, keepdim=True), valid)
        g_loss.backward()
        optimizer_G.step()

        optimizer_D.zero_grad()
        real_pred, fake_pred = discriminator(real_imgs), discriminator(gen_imgs.detach())
        real_loss = adversarial_loss(real_pred - fake_pred.mean(0, keepdim=True), valid)
        fake_loss = adversarial_loss(fake_pred - real_pred.mean(0, keepdim=True), fake)
        d_loss = (real_loss + fake_loss) / 2
        d_loss.backward()
        optimizer_D.step()

        batches_done += 1
        if not is_mended:
            with diary.planted():
                statistics_log.write(batches_done, {"G": generator, "D": discriminator})  # planted
        diary.stepped()
        if batches_done % 200 == 0:
            print(f"[Batch {batches_done}] [D loss: {d_loss.item():f}] [G loss: {g_loss.item():f}]", flush=True)
