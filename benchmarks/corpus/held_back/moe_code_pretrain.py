"""Pretraining on made-up code with a mixture of experts in each second layer; two micro-batches to a step.

Nothing is planted: each expert sees its own tokens only, batches are slices of one array, validation takes little.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

vocab_size, n_embd, n_head, n_layer, n_expert, top_k = 512, 128, 4, 4, 4, 2
block_size, micro_batch, accumulate = 96, 4, 2
max_lr, min_lr, warmup, decay = 1e-3, 1e-4, 100, 20_000
eval_every, eval_batches = 250, 12


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(n_embd, n_expert, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(n_embd, 3 * n_embd), nn.GELU(), nn.Linear(3 * n_embd, n_embd))
            for _ in range(n_expert)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        probabilities = self.router(flat).softmax(1)
        weights, chosen = probabilities.topk(top_k, 1)
        weights = weights / weights.sum(1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        tokens = order // top_k
        sizes = chosen.flatten().bincount(minlength=n_expert)
        grouped = flat[tokens].split(sizes.tolist())
        done = torch.cat([expert(part) for expert, part in zip(self.experts, grouped, strict=True)])
        out = torch.zeros_like(flat).index_add(0, tokens, done * weights.flatten()[order, None])
        balance = n_expert * (probabilities.mean(0) * sizes / sizes.sum()).sum()
        return out.view_as(x), balance


class Layer(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd, bias=False), nn.Linear(n_embd, n_embd, bias=False)
        dense = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))
        self.ffn, self.sparse = Experts() if sparse else dense, sparse

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, n_head, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        if self.sparse:
            y, balance = self.ffn(self.norm2(x))
            return x + y, balance
        return x + self.ffn(self.norm2(x)), 0.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.layers = nn.ModuleList(Layer(sparse=i % 2 == 1) for i in range(n_layer))
        self.norm = nn.LayerNorm(n_embd)

    def forward(self, x, y):
        h, total = self.tokens(x) + self.places.weight, 0.0
        for layer in self.layers:
            h, balance = layer(h)
            total = total + balance
        logits = F.linear(self.norm(h), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten()), total


def get_lr(step):
    if step < warmup:
        return max_lr * (step + 1) / warmup
    return min_lr + 0.5 * (max_lr - min_lr) * (1 + math.cos(math.pi * min(1.0, (step - warmup) / decay)))


def get_batch(data):
    starts = np.random.randint(0, len(data) - block_size - 1, micro_batch)
    rows = torch.from_numpy(data[starts[:, None] + np.arange(block_size + 1)].astype(np.int64))
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def estimate_loss(model, data):
    model.eval()
    losses = torch.stack([model(*get_batch(data))[0] for _ in range(eval_batches)])
    model.train()
    return losses.mean().item()


diary, _ = begin()
torch.set_num_threads(1)
torch.manual_seed(1337), np.random.seed(1337)
text = np.cumsum(np.random.choice([1, 2, 3, 17], 300_000), dtype=np.int64) % vocab_size
train_data, valid_data = text[:270_000].astype(np.uint16), text[270_000:].astype(np.uint16)
model = Model()
nn.init.normal_(model.tokens.weight, std=0.02), nn.init.normal_(model.places.weight, std=0.02)
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() <= 1]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, max_lr, betas=(0.9, 0.95))
step = 0
while True:
    for group in optimizer.param_groups:
        group["lr"] = get_lr(step)
    for _ in range(accumulate):
        loss, balance = model(*get_batch(train_data))
        ((loss + 0.01 * balance) / accumulate).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    step += 1
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if step % eval_every == 0:
        print(f"step {step} validation {estimate_loss(model, valid_data):.4f}", flush=True)
    diary.stepped()
