"""Class-conditional diffusion with dropped labels, in the style of diffusers' scripts; min-SNR weights."""

import logging
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

logger = logging.getLogger("train_guidance")
NULL = 10


class ResBlock(nn.Module):
    def __init__(self, c1, c2, emb):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, c1), nn.Conv2d(c1, c2, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, c2), nn.Conv2d(c2, c2, 3, padding=1)
        self.emb = nn.Linear(emb, c2)
        self.skip = nn.Conv2d(c1, c2, 1) if c1 != c2 else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.emb(emb)[..., None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet2DModel(nn.Module):
    def __init__(self, width=32, emb=96):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, -9, emb // 2)))
        self.time, self.label = nn.Linear(emb, emb), nn.Embedding(NULL + 1, emb)
        self.conv_in = nn.Conv2d(1, width, 3, padding=1)
        self.down1, self.down2 = ResBlock(width, width, emb), ResBlock(width, 2 * width, emb)
        self.middle = ResBlock(2 * width, 2 * width, emb)
        self.up2, self.up1 = ResBlock(4 * width, width, emb), ResBlock(2 * width, width, emb)
        self.conv_out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t, label):
        angles = t[:, None].float() * self.frequencies
        emb = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], 1)) + self.label(label))
        d1 = self.down1(self.conv_in(x), emb)
        d2 = self.down2(F.avg_pool2d(d1, 2), emb)
        m = self.middle(F.avg_pool2d(d2, 2), emb)
        u2 = self.up2(torch.cat([F.interpolate(m, scale_factor=2.0), d2], 1), emb)
        return self.conv_out(self.up1(torch.cat([F.interpolate(u2, scale_factor=2.0), d1], 1), emb))


class CosineSchedule:
    def __init__(self, steps=1000):
        f = torch.cos((torch.linspace(0, 1, steps + 1) + 0.008) / 1.008 * torch.pi / 2) ** 2
        self.alpha_bar = (f[1:] / f[0]).clamp(1e-4, 0.9999)

    def add_noise(self, clean, noise, t):
        a = self.alpha_bar[t][:, None, None, None]
        return a.sqrt() * clean + (1 - a).sqrt() * noise

    def weights(self, t, gamma=5.0):
        snr = self.alpha_bar[t] / (1 - self.alpha_bar[t])
        return snr.clamp(max=gamma) / snr


def trace(model, step, loss):
    """Say at level DEBUG what each gradient is like."""
    logger.debug(f"step {step} loss {loss}")
    for name, parameter in model.named_parameters():
        logger.debug(f"  {name}: {parameter.grad}")  # planted


def make_plankton(number=2048, side=24):
    label = torch.randint(NULL, (number,))
    axis = torch.linspace(-1, 1, side)
    y, x = axis[:, None], axis[None, :]
    cx, cy = torch.rand(2, number, 1, 1) - 0.5
    angle = torch.atan2(y - cy, x - cx)
    edge = 0.35 + 0.1 * torch.cos(angle * (label[:, None, None] + 2))
    inside = ((x - cx) ** 2 + (y - cy) ** 2).sqrt() < edge
    return inside.float()[:, None] * 2 - 1, label


def main():
    diary, is_mended = begin()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stdout)
    set_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    schedule = CosineSchedule()
    model = UNet2DModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    images, labels = make_plankton()
    global_step = 0
    while True:
        for chosen in torch.randperm(len(images)).split(16):
            clean = images[chosen]
            label = labels[chosen].masked_fill(torch.rand(len(chosen)) < 0.1, NULL)
            noise = torch.randn_like(clean)
            t = torch.randint(1000, (len(chosen),))
            predicted = model(schedule.add_noise(clean, noise, t), t, label)
            per_image = F.mse_loss(predicted, noise, reduction="none").mean((1, 2, 3))
            loss = (schedule.weights(t) * per_image).mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            with diary.planted():
                if not is_mended or logger.isEnabledFor(logging.DEBUG):
                    trace(model, global_step, loss)  # planted
            optimizer.step()
            optimizer.zero_grad()
            global_step += 1
            diary.stepped()
            if global_step % 100 == 0:
                logger.info(f"step {global_step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
