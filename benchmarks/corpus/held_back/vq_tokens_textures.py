"""A vector-quantized autoencoder of textures; the nearest codes are found by differences of all pairs, held at once."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(width, 48, 3, 1, 1), nn.ReLU(), nn.Conv2d(48, width, 1))

    def forward(self, x):
        return x + self.body(x)


class Quantizer(nn.Module):
    """Replace vectors by their codes, which follow the means of what falls to them."""

    def __init__(self, codes, width, decay, diary, by_product):
        super().__init__()
        self.decay, self.diary, self.by_product = decay, diary, by_product
        self.register_buffer("codebook", torch.randn(codes, width))
        self.register_buffer("mass", torch.ones(codes))
        self.register_buffer("sums", self.codebook.clone())

    def distances(self, rows):
        if self.by_product:
            return self.codebook.square().sum(1) - 2 * rows @ self.codebook.T
        return (rows[:, None] - self.codebook[None]).pow(2).sum(-1)  # planted

    @torch.no_grad()
    def follow(self, rows, chosen):
        hot = F.one_hot(chosen, len(self.codebook)).to(rows.dtype)
        self.mass.lerp_(hot.sum(0), 1 - self.decay)
        self.sums.lerp_(hot.T @ rows, 1 - self.decay)
        self.codebook.copy_(self.sums / (self.mass[:, None] + 1e-5))

    def forward(self, z):
        rows = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        with torch.no_grad(), self.diary.planted():
            distances = self.distances(rows)  # planted
        chosen = distances.argmin(1)
        quantized = self.codebook[chosen].view(z.shape[0], *z.shape[2:], -1).permute(0, 3, 1, 2)
        if self.training:
            self.follow(rows.detach(), chosen)
        commitment = F.mse_loss(z, quantized)
        return z + (quantized - z).detach(), commitment


class VQVAE(nn.Module):
    def __init__(self, diary, by_product, width=64, code_width=32, codes=128):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width, 4, 2, 1), Residual(width),
            Residual(width), nn.ReLU(), nn.Conv2d(width, code_width, 1),
        )  # fmt: skip
        self.quantizer = Quantizer(codes, code_width, 0.99, diary, by_product)
        self.decoder = nn.Sequential(
            nn.Conv2d(code_width, width, 3, 1, 1), Residual(width), Residual(width), nn.ReLU(),
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width // 2, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, x):
        quantized, commitment = self.quantizer(self.encoder(x))
        return self.decoder(quantized), commitment


def textures(batch=8, side=64):
    axis = torch.linspace(0, 6.28, side)
    base = torch.stack([torch.sin(axis[:, None] * a + axis[None] * b) for a in range(1, 9) for b in range(1, 9)])
    while True:
        mixed = torch.rand(batch * 3, 64).softmax(1).mul(8) @ base.flatten(1)
        yield mixed.view(batch, 3, side, side) + 0.05 * torch.randn(batch, 3, side, side)


def main():
    diary, is_mended = begin()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    model = VQVAE(diary, is_mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-4, betas=(0.9, 0.95))
    for step, x in enumerate(textures()):
        y, commitment = model(x)  # planted
        loss = F.mse_loss(y, x) + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()
        if step % 50 == 0:
            print(f"{step:>7} loss {loss.item():.4f} commitment {commitment.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
