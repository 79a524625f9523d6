"""nanoGPT's shape: configuration and loop at the top level, batches from a memory map, micro-batches, cosine rate.

Nothing is planted.
"""

import math
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

# -----------------------------------------------------------------------------
batch_size, block_size, gradient_accumulation_steps = 8, 64, 4
n_layer, n_head, n_embd, vocab = 3, 4, 96, 128
learning_rate, min_lr, warmup_iters, lr_decay_iters = 6e-4, 6e-5, 50, 5000
grad_clip, eval_interval, eval_iters = 1.0, 200, 4
# -----------------------------------------------------------------------------
diary, _ = begin()
torch.manual_seed(1337)
torch.set_num_threads(1)
data_dir = Path(tempfile.mkdtemp())
for split, count in (("train", 300_000), ("val", 30_000)):
    np.random.default_rng(3).integers(vocab, size=count, dtype=np.uint16).tofile(data_dir / f"{split}.bin")


def get_batch(split):
    data = np.memmap(data_dir / f"{split}.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (
            part.view(b, t, n_head, c // n_head).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f, self.lm_head = nn.LayerNorm(n_embd), nn.Linear(n_embd, vocab, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, vocab), targets.view(-1))


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@dataclass
class State:
    iter_num: int = 0
    best_val_loss: float = 1e9


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {}
    for split in ("train", "val"):
        out[split] = torch.tensor([model(*get_batch(split))[1].item() for _ in range(eval_iters)]).mean()
    model.train()
    return out


model, state, ctx = GPT(), State(), nullcontext()
decay = [p for p in model.parameters() if p.dim() >= 2]
nodecay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": nodecay, "weight_decay": 0.0}],
    lr=learning_rate,
    betas=(0.9, 0.95),
)
X, Y = get_batch("train")
while True:
    lr = get_lr(state.iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    if state.iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {state.iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}", flush=True)
    for _micro_step in range(gradient_accumulation_steps):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if state.iter_num % 20 == 0:
        print(f"iter {state.iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}", flush=True)
    state.iter_num += 1
    diary.stepped()
