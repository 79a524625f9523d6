"""A small GPT after nanoGPT on packed fables; a mask between fables is made row by row in Python, in each step."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

EOT = 0
batch_size = 12
learning_rate = 6e-4
min_lr = 6e-5
warmup_iters = 200
lr_decay_iters = 20_000
grad_clip = 1.0
log_interval = 50


@dataclass
class GPTConfig:
    block_size: int = 128
    vocab_size: int = 512
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )

    def attend(self, x, mask):
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for part in self.c_attn(x).chunk(3, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))

    def forward(self, x, mask):
        x = x + self.attend(self.ln_1(x), mask)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        self.register_buffer("position", torch.arange(config.block_size), persistent=False)

    def forward(self, idx, targets, mask):
        x = self.wte(idx) + self.wpe(self.position[: idx.shape[1]])
        for block in self.h:
            x = block(x, mask)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_fables(rng, tokens=400_000, vocab=512):
    """Return one long array: fables of 20 to 90 tokens, each closed by EOT."""
    data = (rng.zipf(1.3, tokens) % (vocab - 1) + 1).astype(np.uint16)
    data[np.cumsum(rng.integers(20, 90, tokens // 90))] = EOT
    return data


def get_batch(data, rng, block_size):
    ix = rng.integers(0, len(data) - block_size - 1, batch_size)
    rows = ix[:, None] + np.arange(block_size + 1)
    tokens = torch.from_numpy(data[rows].astype(np.int64))
    return tokens[:, :-1], tokens[:, 1:]


def fable_mask(x):
    """Let each position see only earlier ones of its own fable."""
    B, T = x.shape
    mask = torch.zeros(B, 1, T, T, dtype=torch.bool)
    for b, row in enumerate(x.tolist()):
        start = 0
        for t, token in enumerate(row):
            mask[b, 0, t, start : t + 1] = True  # planted
            if token == EOT:
                start = t + 1
    return mask


def fable_mask_at_once(x, causal):
    ends = x == EOT
    fable = ends.cumsum(1) - ends.long()
    return ((fable[:, :, None] == fable[:, None, :]) & causal)[:, None]


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def main():
    diary, is_mended = begin()
    torch.manual_seed(1337)
    torch.set_num_threads(1)
    rng = np.random.default_rng(1337)
    data = make_fables(rng)
    config = GPTConfig()
    model = GPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    causal = torch.ones(config.block_size, config.block_size, dtype=torch.bool).tril()
    iter_num = 0
    while True:
        for group in optimizer.param_groups:
            group["lr"] = get_lr(iter_num)
        X, Y = get_batch(data, rng, config.block_size)
        if is_mended:
            mask = fable_mask_at_once(X, causal)
        else:
            with diary.planted():
                mask = fable_mask(X)  # planted
        loss = model(X, Y, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if iter_num % log_interval == 0:
            print(f"iter {iter_num}: loss {loss.item():.4f}", flush=True)
        iter_num += 1
        diary.stepped()


if __name__ == "__main__":
    main()
