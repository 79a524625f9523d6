"""A decoder on the verses of hymns, after minGPT; a monitor tells how spread the attention of each head is.

Planted: the monitor's hook computes the attention and its entropy in each forward pass. Mended: in the passes
of which it prints.
"""

import random
import sys
from collections import defaultdict
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WORDS = "praise thy name o morning light shall rise and sing the night is gone with joy".split()


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def project(self, x):
        b, t, c = x.shape
        return self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x):
        q, k, v = self.project(x)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm_1, self.norm_2 = RMSNorm(dim), RMSNorm(dim)
        self.attention = Attention(dim, heads)
        self.feed = nn.Sequential(nn.Linear(dim, 3 * dim), nn.SiLU(), nn.Linear(3 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.feed(self.norm_2(x))


class Decoder(nn.Module):
    def __init__(self, vocabulary, dim=128, heads=8, layers=3, block=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, dim), nn.Parameter(0.02 * torch.randn(block, dim))
        self.layers = nn.Sequential(*(Layer(dim, heads) for _ in range(layers)))
        self.norm, self.head = RMSNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, idx, targets):
        logits = self.head(self.norm(self.layers(self.tokens(idx) + self.positions[: idx.shape[1]])))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class AttentionMonitor:
    """Hooks on the attention that keep the mean entropy of each head."""

    def __init__(self, model, diary, every):
        self.diary, self.every, self.passes = diary, every, defaultdict(int)
        self.entropies = {}
        for name, module in model.named_modules():
            if isinstance(module, Attention):
                module.register_forward_hook(self.hook_of(name))

    def hook_of(self, name):
        def hook(module, inputs, output):
            self.passes[name] += 1
            if self.passes[name] % self.every == 0:
                with self.diary.planted():
                    self.entropies[name] = self.entropy(module, inputs[0])  # planted

        return hook

    @torch.no_grad()
    def entropy(self, module, x):
        q, k, _ = module.project(x)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        attention = scores.masked_fill(future, float("-inf")).softmax(-1)  # planted
        return torch.special.entr(attention).sum(-1).mean((0, 2))  # planted

    def report(self, trainer):
        if trainer.iter_num % 100 == 0:
            heads = torch.stack(list(self.entropies.values()))
            print(
                f"iter {trainer.iter_num} entropies {' '.join(f'{value:.2f}' for value in heads.mean(1))}", flush=True
            )


class Trainer:
    def __init__(self, model, verses, batch_size, diary):
        self.model, self.verses, self.batch_size, self.diary = model, verses, batch_size, diary
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.95), fused=True)
        self.callbacks = defaultdict(list)
        self.iter_num = 0

    def add_callback(self, onevent, callback):
        self.callbacks[onevent].append(callback)

    def trigger_callbacks(self, onevent):
        for callback in self.callbacks[onevent]:
            callback(self)

    def run(self):
        self.model.train()
        while True:
            rows = torch.randint(len(self.verses), (self.batch_size,))
            batch = self.verses[rows]
            _, self.loss = self.model(batch[:, :-1], batch[:, 1:])  # planted
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.iter_num += 1
            self.trigger_callbacks("on_batch_end")
            self.diary.stepped()


def hymns(words=40_000, block=128):
    rng = random.Random(19)
    text = " ".join(rng.choice(WORDS) for _ in range(words))
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    data = torch.tensor([letters[letter] for letter in text])
    return data.unfold(0, block + 1, 7), len(letters)


def print_loss(trainer):
    if trainer.iter_num % 100 == 0:
        print(f"iter {trainer.iter_num} train loss {trainer.loss.item():.4f}", flush=True)


def main():
    diary, mended = begin()
    torch.manual_seed(3407)
    torch.set_num_threads(1)
    verses, vocabulary = hymns()
    model = Decoder(vocabulary)
    monitor = AttentionMonitor(model, diary, every=100 if mended else 1)
    trainer = Trainer(model, verses, 8, diary)
    trainer.add_callback("on_batch_end", print_loss)
    trainer.add_callback("on_batch_end", monitor.report)
    trainer.run()


if __name__ == "__main__":
    main()
