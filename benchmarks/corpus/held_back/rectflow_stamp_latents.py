"""Postage stamps made by rectified flow in the latents of a frozen autoencoder, in the style of DiT's train.py.

The images never change, and the autoencoder encodes them again in each step.
"""

import copy
import logging
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

STAMPS, SIDE, COUNTRIES, BATCH = 256, 64, 10, 16
CHANNELS, GRID, WIDTH = 4, 8, 128


def print_stamps():
    rows, columns = torch.meshgrid(torch.linspace(0, 6, SIDE), torch.linspace(0, 6, SIDE), indexing="ij")
    waves, turns = torch.rand(2, STAMPS, 3, 1, 1) * 3
    images = torch.sin(waves * rows + turns * columns + turns)
    images[..., :4, :] = images[..., -4:, :] = 1.0
    return images, torch.randint(COUNTRIES, (STAMPS,))


class FrozenAutoencoder(nn.Module):
    """The encoder's half of an autoencoder that was trained before."""

    def __init__(self):
        super().__init__()
        layers, inputs = [], 3
        for outputs in (24, 48, 64):
            layers += [nn.Conv2d(inputs, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.SiLU()]
            layers += [nn.Conv2d(outputs, outputs, 3, 2, 1), nn.SiLU()]
            inputs = outputs
        self.encoder = nn.Sequential(*layers, nn.Conv2d(64, CHANNELS, 1))
        self.scaling_factor = 4.0

    @torch.no_grad()
    def encode(self, images):
        return self.encoder(images) * self.scaling_factor  # planted


class DiTBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(c)).unsqueeze(1).chunk(6, dim=-1)
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.norm1(x) * (1 + scale1) + shift1)
        q, k, v = qkv.view(batch, tokens, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, WIDTH)
        x = x + gate1 * self.proj(mixed)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.x_embedder = nn.Linear(CHANNELS, WIDTH)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, GRID * GRID, WIDTH))
        self.t_embedder = nn.Sequential(nn.Linear(64, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.y_embedder = nn.Embedding(COUNTRIES, WIDTH)
        self.blocks = nn.ModuleList(DiTBlock() for _ in range(depth))
        self.final = nn.Linear(WIDTH, CHANNELS)
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, 6, 32)))

    def forward(self, x, t, y):
        angles = t[:, None] * self.frequencies
        c = self.t_embedder(torch.cat([angles.sin(), angles.cos()], dim=1)) + self.y_embedder(y)
        x = self.x_embedder(x.flatten(2).transpose(1, 2)) + self.pos_embed
        for block in self.blocks:
            x = block(x, c)
        return self.final(x).transpose(1, 2).view(-1, CHANNELS, GRID, GRID)


@torch.no_grad()
def update_ema(ema, model, decay=0.999):
    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)


def main():
    diary, is_mended = begin()
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s")
    logger = logging.getLogger(__name__)
    torch.manual_seed(21)
    torch.set_num_threads(1)
    images, countries = print_stamps()
    vae = FrozenAutoencoder().eval().requires_grad_(False)
    latents = torch.cat([vae.encode(part) for part in images.split(32)]) if is_mended else None
    model = DiT()
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True)
    train_steps, running_loss = 0, torch.zeros(())
    while True:
        for chosen in torch.randperm(STAMPS).split(BATCH):
            if is_mended:
                x = latents[chosen]
            else:
                with diary.planted():
                    x = vae.encode(images[chosen])  # planted
            t, noise = torch.rand(len(x)), torch.randn_like(x)
            part = t.view(-1, 1, 1, 1)
            velocity = model((1 - part) * noise + part * x, t, countries[chosen])
            loss = F.mse_loss(velocity, x - noise)
            opt.zero_grad()
            loss.backward()
            opt.step()
            update_ema(ema, model)
            running_loss += loss.detach()
            train_steps += 1
            diary.stepped()
            if train_steps % 200 == 0:
                logger.info("(step=%07d) Train Loss: %.4f", train_steps, running_loss.item() / 200)
                running_loss.zero_()


if __name__ == "__main__":
    main()
