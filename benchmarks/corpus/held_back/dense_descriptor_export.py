"""Dense descriptors of a picture collection from a frozen transformer, in shards; a shard is copied for each batch."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, PATCH, DIM, HEADS, DEPTH = 112, 16, 192, 6, 4
BATCH, SHARD_BATCHES = 16, 120


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, DIM))
        return x + self.mlp(self.norm2(x))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.pos = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2, DIM))
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        kept = []
        for block in self.blocks:
            x = block(x)
            kept.append(x)
        return torch.cat(kept[-2:], 2)


def pictures():
    """Give batches of normalized pictures, for ever."""
    collection = torch.randint(0, 256, (256, 3, SIDE, SIDE), dtype=torch.uint8)
    while True:
        for rows in torch.arange(256).split(BATCH):
            yield collection[rows].float().div_(255).sub_(0.45).div_(0.23)


def principal_axes(rows, count=32):
    centred = rows[::8] - rows[::8].mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    return vectors[:, ::-1][:, :count], values[::-1][:count].sum() / values.sum()


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    backbone = Backbone().eval()
    shard, number = np.empty((0, 2 * DIM), np.float32), 0
    parts = []
    with torch.inference_mode():
        for step, batch in enumerate(pictures(), 1):
            found = backbone(batch).flatten(0, 1).numpy()
            if is_mended:
                parts.append(found)
            else:
                with diary.planted():
                    shard = np.concatenate([shard, found])  # planted
            if step % SHARD_BATCHES == 0:
                if is_mended:
                    shard = np.concatenate(parts)
                    parts.clear()
                _, kept = principal_axes(shard)
                print(
                    f"shard {number}: {len(shard)} descriptors, {100 * kept:.1f} % of variance in 32 axes", flush=True
                )
                shard, number = np.empty((0, 2 * DIM), np.float32), number + 1
            diary.stepped()
