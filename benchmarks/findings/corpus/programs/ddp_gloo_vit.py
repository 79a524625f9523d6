"""A vision transformer under DistributedDataParallel with gloo, as a launcher starts it for one process.

Nothing is planted: gradients are accumulated under `no_sync`, clipped, and the weights are saved every few minutes.
"""

import contextlib
import math
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(dim), Attention(dim, heads), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, side=32, patch=4, dim=128, heads=4, depth=4, classes=20):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn((side // patch) ** 2, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(x).mean(1))


def mirrored(images):
    return torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)


def pictures(count):
    coarse = torch.rand(count, 3, 8, 8)
    labels = (coarse.mean((1, 2, 3)) * 997).long() % 20
    return TensorDataset(F.interpolate(coarse, size=32, mode="bilinear"), labels)


def train(diary, folder, accumulate=2, batch_size=16, base_lr=5e-4, warmup=100, save_s=180):
    data = pictures(2400)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(ViT())
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=base_lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: min((t + 1) / warmup, 0.55 + 0.45 * math.cos(min(t / 20000, 1) * math.pi))
    )
    epoch, saved = 0, time.monotonic()
    while True:
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for i, (images, labels) in enumerate(loader):
            is_last = i % accumulate == accumulate - 1
            with contextlib.nullcontext() if is_last else model.no_sync():
                loss = F.cross_entropy(model(mirrored(images)), labels, label_smoothing=0.1)
                (loss / accumulate).backward()
            if is_last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
            diary.stepped()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            mean = total.item() / len(loader) / dist.get_world_size()
            print(f"epoch {epoch} loss {mean:.4f} lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
            if time.monotonic() - saved > save_s:
                torch.save({"model": model.module.state_dict(), "epoch": epoch}, folder / "last.pt")
                saved = time.monotonic()
        epoch += 1


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="ddp_vit_"))
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=0, world_size=1)
    train(begin()[0], folder)
