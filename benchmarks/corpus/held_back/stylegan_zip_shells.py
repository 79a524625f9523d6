"""A small StyleGAN on pictures of shells that lie as PNG files in one archive, as its dataset tool packs them."""

import io
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RESOLUTION, Z_DIM, W_DIM = 32, 64, 64


def pack_shells(path, number):
    rng = np.random.default_rng(12)
    y, x = np.mgrid[-1 : 1 : RESOLUTION * 1j, -1 : 1 : RESOLUTION * 1j]
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for index in range(number):
            spiral = np.sin(rng.uniform(3, 9) * np.log(radius + 0.1) + angle + rng.uniform(0, 6))
            color = rng.uniform(60, 127, 3)
            pixels = 128 + (spiral * (radius < 0.9))[..., None] * color
            buffer = io.BytesIO()
            Image.fromarray(pixels.astype(np.uint8)).save(buffer, "png")
            archive.writestr(f"{index // 100:05d}/img{index:08d}.png", buffer.getvalue())


def read_member(path, name):
    with zipfile.ZipFile(path) as archive:  # planted
        return archive.read(name)


class ImageArchive(Dataset):
    def __init__(self, path, diary, is_mended):
        self.path, self.diary = path, diary
        self.archive = zipfile.ZipFile(path) if is_mended else None
        with zipfile.ZipFile(path) as archive:
            self.names = sorted(name for name in archive.namelist() if name.endswith(".png"))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        if self.archive is not None:
            packed = self.archive.read(self.names[index])
        else:
            with self.diary.planted():
                packed = read_member(self.path, self.names[index])  # planted
        pixels = np.asarray(Image.open(io.BytesIO(packed)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


class ModulatedConv(nn.Module):
    def __init__(self, c_in, c_out, kernel=3, demodulate=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(c_out, c_in, kernel, kernel) / (c_in * kernel**2) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(c_out))
        self.affine = nn.Linear(W_DIM, c_in)
        self.demodulate, self.pad = demodulate, kernel // 2
        nn.init.ones_(self.affine.bias)

    def forward(self, x, w):
        style = self.affine(w)
        x = F.conv2d(x * style[:, :, None, None], self.weight, padding=self.pad)
        if self.demodulate:
            energy = style.square() @ self.weight.square().sum(dim=(2, 3)).T
            x = x * (energy + 1e-8).rsqrt()[:, :, None, None]
        return x + self.bias[None, :, None, None]


class Generator(nn.Module):
    def __init__(self, channels=(64, 48, 32, 24)):
        super().__init__()
        layers = [nn.Linear(Z_DIM, W_DIM), nn.LeakyReLU(0.2), nn.Linear(W_DIM, W_DIM), nn.LeakyReLU(0.2)]
        self.mapping = nn.Sequential(*layers)
        self.const = nn.Parameter(torch.randn(1, channels[0], 4, 4))
        pairs = list(zip((channels[0], *channels[:-1]), channels, strict=True))
        self.convs = nn.ModuleList(ModulatedConv(a, b) for a, b in pairs)
        self.to_rgb = nn.ModuleList(ModulatedConv(c, 3, 1, demodulate=False) for c in channels)

    def forward(self, z):
        w = self.mapping(F.normalize(z, dim=1) * Z_DIM**0.5)
        x, rgb = self.const.expand(len(z), -1, -1, -1), None
        for level, (conv, to_rgb) in enumerate(zip(self.convs, self.to_rgb, strict=True)):
            if level > 0:
                x = F.interpolate(x, scale_factor=2, mode="bilinear")
                rgb = F.interpolate(rgb, scale_factor=2, mode="bilinear")
            x = F.leaky_relu(conv(x, w), 0.2)
            rgb = to_rgb(x, w) if rgb is None else rgb + to_rgb(x, w)
        return rgb


def make_discriminator(channels=(24, 32, 48, 64)):
    layers, c_in = [], 3
    for c in channels:
        layers += [nn.Conv2d(c_in, c, 3, padding=1), nn.LeakyReLU(0.2), nn.AvgPool2d(2)]
        c_in = c
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * c_in, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))


def main():
    diary, is_mended = begin()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    path = Path(tempfile.mkdtemp()) / "shells-32x32.zip"
    pack_shells(path, 480)
    loader = DataLoader(ImageArchive(path, diary, is_mended), batch_size=16, shuffle=True, drop_last=True)
    G, D = Generator(), make_discriminator()
    g_opt = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.99))
    d_opt = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.0, 0.99))
    step = 0
    while True:
        for pixels in loader:  # planted
            real = pixels.float() / 127.5 - 1
            fake = G(torch.randn(len(real), Z_DIM))
            d_loss = F.softplus(D(fake.detach())).mean() + F.softplus(-D(real)).mean()
            if step % 16 == 0:
                leaf = real.clone().requires_grad_()
                (grad,) = torch.autograd.grad(D(leaf).sum(), leaf, create_graph=True)
                d_loss = d_loss + 16 * 0.5 * grad.square().sum(dim=(1, 2, 3)).mean()
            d_opt.zero_grad(set_to_none=True)
            d_loss.backward()
            d_opt.step()

            D.requires_grad_(False)
            g_loss = F.softplus(-D(fake)).mean()
            g_opt.zero_grad(set_to_none=True)
            g_loss.backward()
            g_opt.step()
            D.requires_grad_(True)
            step += 1
            if step % 100 == 0:
                print(f"tick {step // 100} G {g_loss.item():.3f} D {d_loss.item():.3f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
