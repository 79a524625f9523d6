"""A language model pretrained on clauses, laid out like torchtitan; all activations' quantiles are taken each step."""

import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass(frozen=True)
class JobConfig:
    vocab: int = 1_024
    dim: int = 160
    heads: int = 5
    layers: int = 4
    seq_len: int = 128
    local_batch_size: int = 6
    lr: float = 6e-4
    warmup_steps: int = 200
    max_norm: float = 1.0
    log_freq: int = 100


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.wqkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.wqkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, length, dim))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = 2 * config.dim
        self.w1 = nn.Linear(config.dim, hidden, bias=False)
        self.w3 = nn.Linear(config.dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, config.dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention, self.feed_forward = Attention(config), FeedForward(config)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(config.dim), nn.RMSNorm(config.dim)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocab, config.dim)
        self.positions = nn.Parameter(torch.zeros(config.seq_len, config.dim))
        self.layers = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim)
        self.output = nn.Linear(config.dim, config.vocab, bias=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


class ActivationWatch:
    """Keeps what the parts of the blocks put out last, and how it is spread, to see outliers before the loss does."""

    levels = torch.tensor([0.01, 0.5, 0.99, 0.999])

    def __init__(self, model, path):
        self.file = path.open("w")
        self.outputs = {}
        for name, module in model.named_modules():
            if isinstance(module, (Attention, FeedForward, TransformerBlock)):
                module.register_forward_hook(self.keep(name))

    def keep(self, name):
        def hook(module, inputs, output):
            self.outputs[name] = output.detach()

        return hook

    def record(self, step):
        row = {"step": step}
        for name, output in self.outputs.items():
            row[name] = torch.quantile(output.abs().flatten(), self.levels).tolist()  # planted
        self.file.write(json.dumps(row) + "\n")
        if self.file.tell() > 1 << 20:
            self.file.seek(0)


def batches(tokens, config, rng):
    """Give windows at random places, as a dataloader of packed documents does."""
    span = np.arange(config.seq_len + 1)
    while True:
        starts = rng.integers(0, len(tokens) - len(span), config.local_batch_size)
        window = torch.from_numpy(tokens[starts[:, None] + span].astype(np.int64))
        yield window[:, :-1], window[:, 1:]


def clauses(config, rng):
    """Make tokens that follow each other by a few rules, so that there is something to learn."""
    follows = rng.integers(0, config.vocab, (config.vocab, 4))
    choices = rng.integers(0, 4, 300_000)
    tokens, token = np.empty(len(choices), np.uint16), 0
    for place, choice in enumerate(choices):
        tokens[place] = token = follows[token, choice]
    return tokens


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config, rng = JobConfig(), np.random.default_rng(0)
    print(json.dumps(asdict(config)), flush=True)
    data_iterator = batches(clauses(config, rng), config, rng)
    model = Transformer(config)
    watch = ActivationWatch(model, Path(tempfile.mkdtemp()) / "activations.jsonl")
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.1)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / config.warmup_steps))
    for step, (inputs, labels) in enumerate(data_iterator):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)
        optimizer.step()
        warmup.step()
        optimizer.zero_grad()
        if not is_mended:
            with diary.planted():
                watch.record(step)  # planted
        elif step % config.log_freq == 0:
            watch.record(step)
        diary.stepped()
        if step % config.log_freq == 0:
            print(f"step: {step}  loss: {loss.item():.4f}  grad_norm: {norm.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
