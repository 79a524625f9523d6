"""A small GPT with biases linear in the distance: each layer builds them from Python lists, at each forward."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class GPTConfig:
    block_size: int = 128
    vocab_size: int = 96
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0
    batch_size: int = 6
    learning_rate: float = 6e-4
    min_lr: float = 6e-5
    warmup_iters: int = 100
    lr_decay_iters: int = 5000
    grad_clip: float = 1.0


class AlibiAttention(nn.Module):
    def __init__(self, config, diary, is_mended):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.n_head, self.diary, self.is_mended = config.n_head, diary, is_mended
        self.register_buffer("slopes", torch.tensor([2 ** (-8 * (h + 1) / self.n_head) for h in range(self.n_head)]))
        self.register_buffer("bias", self.alibi(config.block_size), persistent=False)

    def alibi(self, T):
        distance = [[float(j - i) if j <= i else float("-inf") for j in range(T)] for i in range(T)]  # planted
        return torch.tensor(distance)[None] * self.slopes.view(-1, 1, 1)  # planted

    def attention_bias(self, T):
        if self.is_mended:
            return self.bias[:, :T, :T]
        with self.diary.planted():
            return self.alibi(T)  # planted

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).chunk(3, dim=-1))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1)) + self.attention_bias(T)  # planted
        return self.c_proj((F.softmax(att, dim=-1) @ v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, config, diary, is_mended):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = AlibiAttention(config, diary, is_mended)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config, diary, is_mended):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.h = nn.ModuleList(Block(config, diary, is_mended) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def configure_optimizers(self, weight_decay, lr):
        decay = [p for p in self.parameters() if p.dim() >= 2]
        rest = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def get_lr(it, config):
    if it < config.warmup_iters:
        return config.learning_rate * (it + 1) / config.warmup_iters
    if it > config.lr_decay_iters:
        return config.min_lr
    ratio = (it - config.warmup_iters) / (config.lr_decay_iters - config.warmup_iters)
    return config.min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (config.learning_rate - config.min_lr)


def get_batch(data, config):
    ix = torch.randint(len(data) - config.block_size, (config.batch_size,))
    x = torch.stack([data[i : i + config.block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + config.block_size] for i in ix])
    return x, y


def main(diary, is_mended):
    config = GPTConfig()
    data = (torch.arange(200_000) * 7919 // 13 + torch.randint(5, (200_000,))) % config.vocab_size
    model = GPT(config, diary, is_mended)
    optimizer = model.configure_optimizers(0.1, config.learning_rate)
    X, Y = get_batch(data, config)
    iter_num = 0
    while True:
        for group in optimizer.param_groups:
            group["lr"] = get_lr(iter_num, config)
        _, loss = model(X, Y)
        X, Y = get_batch(data, config)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if iter_num % 100 == 0:
            print(f"iter {iter_num}: loss {loss.item():.4f}", flush=True)
        iter_num += 1
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(1337)
    torch.set_num_threads(1)
    main(*begin())
