"""A character GPT on brewing notes, after nanoGPT, which can be resumed in the middle of an epoch.

The windows are drawn in a shuffled order without repeats. So that a run that is cut off goes on with the next
window, the sampler's state is put beside the checkpoint after each step. Planted: the state is the whole
order, as JSON. Mended: the seed, the epoch and the position, from which the order follows.
"""

import json
import math
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WORDS = "mash sparge wort hops boil yeast barley malt lager stout rest cool pitch rack prime gravity kettle".split()


@dataclass
class GPTConfig:
    block_size: int = 96
    vocab_size: int = 32
    n_layer: int = 3
    n_head: int = 4
    n_embd: int = 128


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head = config.n_head

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.n_head, c // self.n_head).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


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
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class WindowSampler:
    """The starts of windows, shuffled anew in each epoch."""

    def __init__(self, windows, batch_size, seed):
        self.windows, self.batch_size, self.seed = windows, batch_size, seed
        self.epoch, self.position = 0, 0
        self.shuffle()

    def shuffle(self):
        self.order = list(range(self.windows))
        random.Random(f"{self.seed}/{self.epoch}").shuffle(self.order)

    def next_starts(self):
        if self.position + self.batch_size > self.windows:
            self.epoch, self.position = self.epoch + 1, 0
            self.shuffle()
        starts = self.order[self.position : self.position + self.batch_size]
        self.position += self.batch_size
        return starts

    def state_dict(self, small):
        state = {"seed": self.seed, "epoch": self.epoch, "position": self.position}
        return state if small else {**state, "order": self.order}


def save_sampler(sampler, path, small):
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        json.dump(sampler.state_dict(small), file)  # planted
    partial.replace(path)


def get_lr(it, learning_rate=6e-4, warmup_iters=100, lr_decay_iters=200_000):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    return learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1, it / lr_decay_iters))))


# -----------------------------------------------------------------------------
diary, mended = begin()
torch.manual_seed(1337)
torch.set_num_threads(1)
config = GPTConfig()
out_dir = Path(tempfile.mkdtemp(prefix="out-brewing-"))
rng = random.Random(4)
text = " ".join(rng.choices(WORDS, k=20_000))
stoi = {character: number for number, character in enumerate(sorted(set(text)))}
data = torch.tensor([stoi[character] for character in text])
windows = data.unfold(0, config.block_size + 1, 1)
sampler = WindowSampler(60_000, 8, seed=1337)
model = GPT(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

iter_num = 0
while True:
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    batch = windows[sampler.next_starts()]
    loss = model(batch[:, :-1], batch[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with diary.planted():
        save_sampler(sampler, out_dir / "sampler.json", small=mended)  # planted
    if iter_num % 100 == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}", flush=True)
    if iter_num % 1000 == 999:
        torch.save({"model": model.state_dict(), "iter_num": iter_num}, out_dir / "ckpt.pt")
    iter_num += 1
    diary.stepped()
