"""A masked autoencoder: a transformer sees a quarter of the patches, a smaller one paints the rest.

Nothing is planted: pictures are mirrored and cut one by one in the main process, and that is a small part of a step.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from timm.models.vision_transformer import Block
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

IMAGE, PATCH = 64, 8


class Landscapes(Dataset):
    """Smooth pictures with a horizon; each access cuts another window and mirrors it by chance."""

    def __init__(self, count=600, size=80):
        sky = F.interpolate(torch.rand(count, 3, 4, 4), size=size, mode="bilinear", align_corners=False)
        ground = F.interpolate(torch.rand(count, 3, 20, 20), size=size, mode="bilinear", align_corners=False)
        line = (size * (0.3 + 0.4 * torch.rand(count))).view(-1, 1, 1, 1)
        self.pictures = torch.where(torch.arange(size).view(1, 1, -1, 1) < line, sky, ground)
        self.mean, self.std = self.pictures.mean((0, 2, 3)).view(3, 1, 1), self.pictures.std((0, 2, 3)).view(3, 1, 1)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        top, left, mirrored = torch.randint(17, (3,)).tolist()
        picture = self.pictures[index, :, top : top + IMAGE, left : left + IMAGE]
        return ((picture.flip(-1) if mirrored % 2 else picture) - self.mean) / self.std


def sincos_2d(width, side):
    """Positions of patches on a square, (side * side, width)."""
    rates = 1 / 10_000 ** (torch.arange(width // 4) / (width // 4))
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.cat([wave(at.reshape(-1, 1) * rates) for at in (x, y) for wave in (torch.sin, torch.cos)], 1)


class MaskedAutoencoder(nn.Module):
    def __init__(self, width=128, depth=4, heads=4, decoder_width=64, decoder_depth=2, mask_ratio=0.75):
        super().__init__()
        side = IMAGE // PATCH
        self.count, self.mask_ratio = side * side, mask_ratio
        self.patch_embed = nn.Conv2d(3, width, PATCH, PATCH)
        self.register_buffer("places", sincos_2d(width, side))
        self.blocks = nn.Sequential(*(Block(width, heads, qkv_bias=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.decoder_embed = nn.Linear(width, decoder_width)
        self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, decoder_width))
        self.register_buffer("decoder_places", sincos_2d(decoder_width, side))
        self.decoder = nn.Sequential(*(Block(decoder_width, heads, qkv_bias=True) for _ in range(decoder_depth)))
        self.predict = nn.Sequential(nn.LayerNorm(decoder_width), nn.Linear(decoder_width, 3 * PATCH**2))

    def patchify(self, images):
        return F.unfold(images, PATCH, stride=PATCH).transpose(1, 2)

    def random_masking(self, x):
        """Keep other patches of each picture; return them, what is masked, and how to put all in order."""
        n, length, width = x.shape
        kept = int(length * (1 - self.mask_ratio))
        shuffled = torch.rand(n, length).argsort(1)
        restore = shuffled.argsort(1)
        visible = x.gather(1, shuffled[:, :kept, None].expand(-1, -1, width))
        mask = torch.ones(n, length)
        mask[:, :kept] = 0
        return visible, mask.gather(1, restore), restore

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2) + self.places
        x, mask, restore = self.random_masking(x)
        x = self.decoder_embed(self.norm(self.blocks(x)))
        hidden = self.mask_token.expand(len(x), self.count - x.shape[1], -1)
        x = torch.cat([x, hidden], 1).gather(1, restore[..., None].expand(-1, -1, x.shape[2]))
        painted = self.predict(self.decoder(x + self.decoder_places))
        target = self.patchify(images)
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6).sqrt()
        return (((painted - target) ** 2).mean(-1) * mask).sum() / mask.sum()


def adjust_learning_rate(optimizer, epoch, base=1.5e-4 * 8, warmup=5, epochs=4000):
    if epoch < warmup:
        lr = base * epoch / warmup
    else:
        lr = base * 0.5 * (1 + math.cos(math.pi * min(1.0, (epoch - warmup) / (epochs - warmup))))
    for group in optimizer.param_groups:
        group["lr"] = lr
    return lr


def param_groups(model, weight_decay=0.05):
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def main(diary, _, accum_iter=1):
    dataset, model = Landscapes(), MaskedAutoencoder()
    loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(param_groups(model), lr=1e-3, betas=(0.9, 0.95))
    for epoch in range(10**9):
        total = torch.zeros(())
        for step, images in enumerate(loader):
            if step % accum_iter == 0:
                lr = adjust_learning_rate(optimizer, epoch + step / len(loader))
            loss = model(images) / accum_iter
            loss.backward()
            if (step + 1) % accum_iter == 0:
                optimizer.step()
                optimizer.zero_grad()
            total += loss.detach()
            diary.stepped()
        if epoch % 10 == 0:
            print(f"Epoch: [{epoch}] loss: {total.item() / len(loader):.4f} lr: {lr:.2e}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
