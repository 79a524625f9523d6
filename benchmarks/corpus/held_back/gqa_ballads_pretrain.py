"""A decoder with grouped queries, pretrained on ballads: rotary places, SwiGLU, accumulated gradients.

Nothing is planted.
"""

import itertools
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, _ = begin()
torch.manual_seed(61)
torch.set_num_threads(1)

# -----------------------------------------------------------------------------
block_size, batch_size, gradient_accumulation_steps = 96, 5, 2
n_embd, n_layer, n_head, n_kv_head, vocab_size = 128, 3, 8, 2, 512
max_lr, warmup_iters, plateau_iters, decay_iters = 1e-3, 200, 20_000, 5_000
eval_interval, eval_iters, log_interval = 500, 4, 100
# -----------------------------------------------------------------------------

follows = torch.randint(vocab_size, (vocab_size, 6))
word, table, chain = 0, follows.tolist(), []
for choice in torch.randint(6, (120_000,)).tolist():
    word = table[word][choice]
    chain.append(word)
tokens = torch.tensor(chain)
train_tokens, val_tokens = tokens[:108_000], tokens[108_000:]
offsets = torch.arange(block_size + 1)


def get_batch(data):
    starts = torch.randint(len(data) - block_size - 1, (batch_size, 1))
    rows = data[starts + offsets]
    return rows[:, :-1], rows[:, 1:]


def get_lr(it):
    if it < warmup_iters:
        return max_lr * (it + 1) / warmup_iters
    if it < warmup_iters + plateau_iters:
        return max_lr
    done = min(1.0, (it - warmup_iters - plateau_iters) / decay_iters)
    return max_lr * (1 - 0.9 * math.sqrt(done))


def rotary_table(dim):
    angles = torch.outer(torch.arange(block_size).float(), 10_000 ** (-torch.arange(0, dim, 2).float() / dim))
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.dim = n_embd // n_head
        self.q = nn.Linear(n_embd, n_embd, bias=False)
        self.kv = nn.Linear(n_embd, 2 * n_kv_head * self.dim, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        q = self.q(x).view(B, T, n_head, self.dim).transpose(1, 2)
        k, v = self.kv(x).view(B, T, 2, n_kv_head, self.dim).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(n_embd), nn.RMSNorm(n_embd)
        self.attn = Attention()
        self.gate_up, self.down = nn.Linear(n_embd, 6 * n_embd, bias=False), nn.Linear(3 * n_embd, n_embd, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm_1(x), cos, sin)
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.blocks = nn.ModuleList([Block() for _ in range(n_layer)])
        self.norm = nn.RMSNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        cos, sin = rotary_table(n_embd // n_head)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, idx, targets):
        x = self.wte(idx)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    mean = torch.stack([model(*get_batch(val_tokens)) for _ in range(eval_iters)]).mean().item()
    model.train()
    return mean


model = Decoder()
decayed = [p for p in model.parameters() if p.dim() >= 2]
others = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
    lr=max_lr,
    betas=(0.9, 0.95),
    fused=True,
)

for it in itertools.count():
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    for _ in range(gradient_accumulation_steps):
        loss = model(*get_batch(train_tokens)) / gradient_accumulation_steps
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    diary.stepped()
    if it % log_interval == 0:
        print(f"iter {it} loss {gradient_accumulation_steps * loss.item():.4f}", flush=True)
    if it % eval_interval == eval_interval - 1:
        print(f"iter {it} val loss {estimate_loss(model):.4f}", flush=True)
