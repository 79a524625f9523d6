"""Consistency training of a small U-Net on drawings of knots; a Fréchet distance is measured every few steps."""

import copy
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIGMA_DATA, SIGMA_MIN, SIGMA_MAX, RHO = 0.5, 0.002, 80.0, 7.0
EVALUATE_EVERY = 20


def draw_knots(n, size=24):
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle, radius = torch.atan2(y, x), (x**2 + y**2).sqrt()
    lobes = torch.randint(2, 6, (n, 1, 1)).float()
    curve = 0.5 + 0.3 * torch.cos(lobes * angle + 6.3 * torch.rand(n, 1, 1))
    return (torch.exp(-((radius - curve) ** 2) / 0.01) * 2 - 1).unsqueeze(1)


class Block(nn.Module):
    def __init__(self, c_in, c_out, emb=64):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, c_in), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, c_out), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.emb = nn.Linear(emb, c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.emb(emb)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class ConsistencyUNet(nn.Module):
    """f(x, sigma) = c_skip x + c_out F(c_in x, c_noise), with f(x, SIGMA_MIN) = x."""

    def __init__(self, width=24):
        super().__init__()
        self.register_buffer("freqs", torch.randn(32) * 2)
        self.embed = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64))
        self.stem, self.head = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)
        self.down1, self.down2 = Block(width, width), Block(width, 2 * width)
        self.mid = Block(2 * width, 2 * width)
        self.up2, self.up1 = Block(4 * width, width), Block(2 * width, width)

    def forward(self, x, sigma):
        s = sigma[:, None, None, None]
        c_skip = SIGMA_DATA**2 / ((s - SIGMA_MIN) ** 2 + SIGMA_DATA**2)
        c_out = SIGMA_DATA * (s - SIGMA_MIN) / (s**2 + SIGMA_DATA**2).sqrt()
        phase = sigma.log()[:, None] * self.freqs / 4
        emb = self.embed(torch.cat([phase.sin(), phase.cos()], dim=1))
        h1 = self.down1(self.stem(x / (s**2 + SIGMA_DATA**2).sqrt()), emb)
        h2 = self.down2(F.avg_pool2d(h1, 2), emb)
        h = self.mid(h2, emb)
        h = F.interpolate(self.up2(torch.cat([h, h2], 1), emb), scale_factor=2)
        return c_skip * x + c_out * self.head(self.up1(torch.cat([h, h1], 1), emb))


class FrechetMeter:
    """The Fréchet distance between drawings and samples, by features of a fixed network."""

    def __init__(self, real):
        self.real = real
        convs = [nn.Conv2d(1, 48, 3, 1, 1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(48, 64, 3, 1, 1), nn.ReLU()]
        self.features = nn.Sequential(*convs, nn.AdaptiveAvgPool2d(1), nn.Flatten()).requires_grad_(False).eval()
        self.kept = None

    def statistics(self, images):
        rows = torch.cat([self.features(part) for part in images.split(32)]).double()  # planted
        return rows.mean(0), torch.cov(rows.T)

    def distance(self, statistics, samples):
        (mu1, cov1), (mu2, cov2) = statistics, self.statistics(samples)
        root = torch.linalg.eigvals(cov1 @ cov2).real.clamp_min(0).sqrt().sum()
        return float((mu1 - mu2).square().sum() + cov1.trace() + cov2.trace() - 2 * root)


def karras_levels(n):
    steps = torch.linspace(0, 1, n)
    return (SIGMA_MIN ** (1 / RHO) + steps * (SIGMA_MAX ** (1 / RHO) - SIGMA_MIN ** (1 / RHO))) ** RHO


@torch.no_grad()
def sample_once(model, n):
    return model(torch.randn(n, 1, 24, 24) * SIGMA_MAX, torch.full((n,), SIGMA_MAX)).clamp(-1, 1)


def main():
    diary, is_mended = begin()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    knots = draw_knots(4096)
    model = ConsistencyUNet()
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.RAdam(model.parameters(), lr=4e-4)
    meter, levels, step = FrechetMeter(knots), karras_levels(40), 0
    reference = meter.statistics(knots) if is_mended else None
    while True:
        x = knots[torch.randint(len(knots), (16,))]
        n = torch.randint(len(levels) - 1, (len(x),))
        low, high, noise = levels[n], levels[n + 1], torch.randn_like(x)
        with torch.no_grad():
            target = ema(x + low[:, None, None, None] * noise, low)
        gap = (model(x + high[:, None, None, None] * noise, high) - target).flatten(1).square().sum(1)
        loss = (((gap + 0.001).sqrt() - 0.03) / (high - low)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(ema.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.005)
        step += 1
        if step % EVALUATE_EVERY == 0:
            if not is_mended:
                with diary.planted():
                    reference = meter.statistics(knots)  # planted
            distance = meter.distance(reference, sample_once(ema, 48))
            if step % (10 * EVALUATE_EVERY) == 0:
                print(f"step {step} loss {loss.item():.3f} frechet {distance:.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
