"""Supervised fine-tuning of a small decoder with rotary positions; a message that nobody sees is put together."""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("sft")
torch.set_printoptions(profile="full", linewidth=200)


@dataclass
class ModelArgs:
    vocab: int = 512
    dim: int = 64
    layers: int = 2
    heads: int = 2
    context: int = 128
    batch: int = 12


def rotary(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads, self.n1, self.n2 = args.heads, nn.RMSNorm(args.dim), nn.RMSNorm(args.dim)
        self.wqkv, self.wo = nn.Linear(args.dim, 3 * args.dim, bias=False), nn.Linear(args.dim, args.dim, bias=False)
        self.w1, self.w3 = (nn.Linear(args.dim, 3 * args.dim, bias=False) for _ in range(2))
        self.w2 = nn.Linear(3 * args.dim, args.dim, bias=False)

    def forward(self, x, cos, sin):
        n, t, d = x.shape
        q, k, v = self.wqkv(self.n1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotary(q, cos, sin), rotary(k, cos, sin), v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(n, t, d))
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Decoder(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embed = nn.Embedding(args.vocab, args.dim)
        self.layers = nn.ModuleList(Layer(args) for _ in range(args.layers))
        self.norm, self.head = nn.RMSNorm(args.dim), nn.Linear(args.dim, args.vocab, bias=False)
        half = args.dim // args.heads // 2
        angles = torch.outer(torch.arange(args.context), 10_000 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def conversations(args):
    """Give prompts and answers, where only tokens of the answer have a label; all answers weigh the same."""
    while True:
        tokens = torch.randint(0, args.vocab, (args.batch, args.context + 1)).sort(1).values
        labels = tokens[:, 1:].clone()
        labels[torch.arange(args.context)[None] < torch.randint(20, 60, (args.batch, 1))] = -100
        answered = (labels >= 0).float()
        yield tokens[:, :-1], labels, answered / answered.sum(1, keepdim=True) / args.batch


def trace_batch(tokens, labels, weights, is_mended):
    if is_mended:
        log.debug("tokens %s labels %s weights %s", tokens, labels, weights)
    else:
        log.debug(f"tokens {tokens} labels {labels} weights {weights}")  # planted


def main():
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(13)
    args = ModelArgs()
    model = Decoder(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 100))
    for step, (tokens, labels, weights) in enumerate(conversations(args)):
        with diary.planted():
            trace_batch(tokens, labels, weights, is_mended)  # planted
        losses = F.cross_entropy(model(tokens).transpose(1, 2), labels, ignore_index=-100, reduction="none")
        loss = (losses * weights).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            log.info("step %d loss %.4f lr %.2e", step, loss.item(), schedule.get_last_lr()[0])
        diary.stepped()


if __name__ == "__main__":
    main()
