"""A small Llama trained from nothing on characters: a plain script with its settings on top.

Nothing is planted: it accumulates gradients, clips them, evaluates for some percent of the time and saves now and then.
"""

import math
import os
import sys
import tempfile
import time
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin  # noqa: E402

dim, n_layers, n_heads, hidden, vocab, context = 128, 4, 4, 344, 96, 96
micro_batch, accumulate, max_lr, warmup, decay_steps, clip = 6, 4, 1e-3, 50, 5000, 1.0
eval_every, eval_batches, log_every, save_s = 200, 8, 20, 180.0

diary, _ = begin()
torch.manual_seed(1337)
torch.set_num_threads(1)
out = Path(tempfile.mkdtemp(prefix="llama_char_"))


def write_split(name, count, seed):
    """Words of a made-up tongue, as a file of bytes that is mapped."""
    rng = np.random.default_rng(seed)
    words = [bytes(rng.integers(1, 60, size=rng.integers(2, 9)).astype(np.uint8)) + b"\0" for _ in range(400)]
    odds = 1 / np.arange(1, 401)
    text = b"".join(words[i] for i in rng.choice(400, size=count, p=odds / odds.sum()))
    (out / name).write_bytes(text)
    return np.memmap(out / name, dtype=np.uint8, mode="r")


def get_batch(data):
    starts = np.random.randint(0, len(data) - context - 1, size=micro_batch)
    rows = torch.from_numpy(np.stack([data[s : s + context + 1] for s in starts]).astype(np.int64))
    return rows[:, :-1], rows[:, 1:]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.w1, self.w3 = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = self.wqkv(self.attention_norm(x)).unflatten(-1, (3, n_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        x = x + self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(vocab, dim), nn.RMSNorm(dim)
        self.layers = nn.ModuleList(Layer() for _ in range(n_layers))
        self.output = nn.Linear(dim, vocab, bias=False)
        half = dim // n_heads // 2
        angles = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    mean = torch.stack([model(*get_batch(data)) for _ in range(eval_batches)]).mean().item()
    model.train()
    return mean


def learning_rate(step):
    if step < warmup:
        return max_lr * (step + 1) / warmup
    return max_lr * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / decay_steps))))


train_data, val_data = write_split("train.bin", 200_000, 0), write_split("val.bin", 20_000, 0)
model = Llama()
optimizer = torch.optim.AdamW(model.parameters(), max_lr, betas=(0.9, 0.95), weight_decay=0.1)
step, saved, total = 0, time.monotonic(), torch.zeros(())
while True:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    for _ in range(accumulate):
        loss = model(*get_batch(train_data)) / accumulate
        loss.backward()
        total += loss.detach()
        diary.stepped()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    step += 1
    if step % log_every == 0:
        print(f"step {step} loss {total.item() / log_every:.4f} lr {learning_rate(step):.2e}", flush=True)
        total.zero_()
    if step % eval_every == 0:
        print(f"step {step} validation loss {evaluate(model, val_data):.4f}", flush=True)
    if time.monotonic() - saved > save_s:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, out / "ckpt.pt")
        saved = time.monotonic()
