"""A retentive network pretrained on recipes from a memory map, with accumulated gradients. Nothing is planted."""

import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, _ = begin()

# -----------------------------------------------------------------------------
# model
n_layer, n_head, n_embd, vocab_size, block_size = 4, 4, 128, 1_024, 128
# data and optimization
batch_size, accumulate, learning_rate, min_lr = 4, 2, 1e-3, 1e-4
warmup_iters, stable_iters, decay_iters = 100, 4_000, 1_000
log_interval, eval_interval, eval_iters = 50, 500, 8
# -----------------------------------------------------------------------------

torch.manual_seed(1337)
torch.set_num_threads(1)


def write_bin(path, length, seed):
    """Write recipes as tokens: a dish wants its own ingredients, and the steps follow in order."""
    rng = np.random.default_rng(seed)
    dishes = rng.integers(0, 60, length // 16)
    recipes = 60 + (dishes[:, None] * 13 + rng.integers(0, 13, (len(dishes), 16))) % (vocab_size - 60)
    recipes[:, 0] = dishes
    recipes[:, 8:] = (recipes[:, 7:8] + np.arange(1, 9)) % vocab_size
    recipes.astype(np.uint16).tofile(path)


folder = Path(tempfile.mkdtemp())
write_bin(folder / "train.bin", 2_000_000, 0)
write_bin(folder / "val.bin", 50_000, 1)
splits = {name: np.memmap(folder / f"{name}.bin", dtype=np.uint16, mode="r") for name in ("train", "val")}
window = np.arange(block_size + 1)
rng = np.random.default_rng(1337)


def get_batch(split):
    data = splits[split]
    starts = rng.integers(0, len(data) - block_size - 1, batch_size)
    tokens = torch.from_numpy(data[starts[:, None] + window].astype(np.int64))
    return tokens[:, :-1], tokens[:, 1:]


class Retention(nn.Module):
    """Retention in its parallel form: attention without softmax, whose weights fade with the distance."""

    def __init__(self):
        super().__init__()
        self.qkvg = nn.Linear(n_embd, 4 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)
        self.norm = nn.GroupNorm(n_head, n_embd)
        gamma = 1 - torch.exp2(-5 - torch.arange(n_head).float())
        place = torch.arange(block_size)
        apart = (place[:, None] - place).float()
        fade = torch.where(apart >= 0, gamma.view(-1, 1, 1) ** apart.clamp(min=0), torch.zeros(()))
        scale = math.sqrt(n_embd // n_head) * fade.sum(-1, keepdim=True).sqrt()
        self.register_buffer("fade", fade / scale, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v, gate = self.qkvg(x).view(B, T, 4, C).unbind(2)
        q, k, v = (part.view(B, T, n_head, C // n_head).transpose(1, 2) for part in (q, k, v))
        kept = (q @ k.transpose(-2, -1) * self.fade[:, :T, :T]) @ v
        kept = self.norm(kept.transpose(1, 2).reshape(B * T, C)).view(B, T, C)
        return self.proj(F.silu(gate) * kept)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd, bias=False), nn.LayerNorm(n_embd, bias=False)
        self.retention = Retention()
        self.mlp = nn.Sequential(nn.Linear(n_embd, 2 * n_embd), nn.GELU(), nn.Linear(2 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.retention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class RetNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.blocks = nn.Sequential(*(Block() for _ in range(n_layer)))
        self.ln_f = nn.LayerNorm(n_embd, bias=False)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.02)

    def forward(self, idx, targets):
        logits = self.lm_head(self.ln_f(self.blocks(self.wte(idx))))
        return F.cross_entropy(logits.view(-1, vocab_size), targets.reshape(-1))


def get_lr(it):
    """Warm up, stay, and decay at last: the schedule that needs no end when it begins."""
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    over = (it - warmup_iters - stable_iters) / decay_iters
    return max(min_lr, learning_rate * (1 - max(0.0, over)))


@torch.no_grad()
def estimate_loss():
    model.eval()
    loss = sum(model(*get_batch("val")).item() for _ in range(eval_iters)) / eval_iters
    model.train()
    return loss


model = RetNet()
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
    lr=learning_rate,
    betas=(0.9, 0.95),
    fused=True,
)

iter_num, t0 = 0, time.perf_counter()
while True:
    lr = get_lr(iter_num)
    for group in optimizer.param_groups:
        group["lr"] = lr
    for _ in range(accumulate):
        X, Y = get_batch("train")
        loss = model(X, Y)
        (loss / accumulate).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    diary.stepped()
    iter_num += 1
    if iter_num % log_interval == 0:
        t0, begun = time.perf_counter(), t0
        per_iter_ms = (t0 - begun) / log_interval * 1000
        print(f"iter {iter_num}: loss {loss.item():.4f}, lr {lr:.1e}, time {per_iter_ms:.0f}ms", flush=True)
    if iter_num % eval_interval == 0:
        print(f"iter {iter_num}: val loss {estimate_loss():.4f}", flush=True)
