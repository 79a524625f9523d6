"""A small GPT over the logbooks of lighthouse keepers, after nanoGPT; entries are drawn by their tempered lengths."""

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
torch.manual_seed(1871)
torch.set_num_threads(1)

# -----------------------------------------------------------------------------
batch_size = 12
block_size = 64
temper = 0.7  # 1: entries are drawn in proportion to their length, 0: all alike
learning_rate, min_lr, warmup_iters, lr_decay_iters = 6e-4, 6e-5, 200, 20_000
weight_decay, grad_clip, log_interval = 0.1, 1.0, 200
# -----------------------------------------------------------------------------


@dataclass
class GPTConfig:
    vocab_size: int = 96
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 96


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for y in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe.weight[: idx.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# the logbooks: one run of tokens, and where each entry begins
rng = np.random.default_rng(1871)
lengths = rng.geometric(1 / 24, size=600_000) + 8
starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
syllables = rng.integers(0, 96, (500, 6))
logbook = syllables[rng.integers(0, 500, lengths.sum() // 6 + block_size)].reshape(-1).astype(np.uint8)
cumulative = np.cumsum(lengths**temper) / np.sum(lengths**temper)


def draw_entries(count):
    if is_mended:
        return np.searchsorted(cumulative, rng.random(count))
    with diary.planted():
        weights = lengths**temper  # planted
        return rng.choice(len(lengths), size=count, p=weights / weights.sum())  # planted


def get_batch():
    begins = np.minimum(starts[draw_entries(batch_size)], len(logbook) - block_size - 1)  # planted
    window = torch.from_numpy(logbook[begins[:, None] + np.arange(block_size + 1)].astype(np.int64))
    return window[:, :-1], window[:, 1:]


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


model = GPT(GPTConfig())
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}],
    lr=learning_rate,
    betas=(0.9, 0.95),
    fused=True,
)

iter_num = 0
t0 = time.time()
while True:
    lr = get_lr(iter_num)
    for group in optimizer.param_groups:
        group["lr"] = lr
    X, Y = get_batch()  # planted
    loss = model(X, Y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        t1 = time.time()
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {(t1 - t0) * 1000 / log_interval:.2f}ms", flush=True)
        t0 = t1
    iter_num += 1
    diary.stepped()
