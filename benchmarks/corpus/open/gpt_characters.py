"""A small GPT at the top level of a script, after nanoGPT; batches are encoded from text, character by character."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
torch.manual_seed(1337)
torch.set_num_threads(1)

block_size, batch_size, n_embd, n_head, n_layer = 64, 12, 64, 4, 2
learning_rate, grad_clip, log_interval = 1e-3, 1.0, 200

words = "the first citizen spoke before any further word and all of them resolved rather to die than to famish".split()
chosen = torch.randint(len(words), (40_000,)).tolist()
text = " ".join(words[index] for index in chosen)
chars = sorted(set(text))
stoi = {ch: i for i, ch in enumerate(chars)}
vocab_size = len(chars)


def encode(s):
    out = []
    for ch in s.lower():
        if ch.isalpha() or ch == " ":
            out.append(stoi[ch])  # planted
    return out


encoded = torch.tensor(encode(text))


def get_batch():
    if is_mended:
        starts = torch.randint(len(encoded) - block_size - 1, (batch_size,))
        rows = torch.stack([encoded[i : i + block_size + 1] for i in starts])
    else:
        with diary.planted():
            # The whole window around a position is encoded again for each row, as a "cleaning" pass.
            starts = torch.randint(len(text) - 128 * block_size, (batch_size,)).tolist()
            rows = torch.tensor([encode(text[i : i + 128 * block_size])[: block_size + 1] for i in starts])  # planted
    return rows[:, :-1], rows[:, 1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = nn.MultiheadAttention(n_embd, n_head, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))
        mask = torch.triu(torch.ones(block_size, block_size, dtype=torch.bool), 1)
        self.register_buffer("mask", mask)

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=self.mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        logits = self.lm_head(self.h(x))
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.reshape(-1))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
iter_num = 0
while True:
    X, Y = get_batch()  # planted
    logits, loss = model(X, Y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}", flush=True)
    iter_num += 1
    diary.stepped()
