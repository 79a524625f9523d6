"""A loop without a DataLoader: a small language model, recurrent or a transformer, that returns its own loss.

Usage: language.py lstm|transformer [--steps N]
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, LENGTH, BATCH = 2000, 64, 16


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 128)
        self.lstm = nn.LSTM(128, 128, 2, batch_first=True)
        self.head = nn.Linear(128, VOCABULARY)

    def forward(self, tokens, targets):
        hidden, _ = self.lstm(self.embedding(tokens))
        logits = self.head(hidden)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.split = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)

    def forward(self, hidden):
        shape = (*hidden.shape[:2], self.heads, -1)
        query, key, value = (part.view(shape).transpose(1, 2) for part in self.split(hidden).chunk(3, -1))
        weights = query @ key.transpose(-2, -1) / value.shape[-1] ** 0.5
        mask = torch.ones(weights.shape[-2:], dtype=torch.bool).triu(1)
        weights = weights.masked_fill(mask, float("-inf")).softmax(-1)
        return self.join((weights @ value).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, hidden):
        hidden = hidden + self.attention(self.before(hidden))
        return hidden + self.perceptron(self.between(hidden))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 128)
        self.blocks = nn.ModuleList(Block(128, 4) for _ in range(3))
        self.head = nn.Linear(128, VOCABULARY)

    def forward(self, tokens, targets):
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(hidden)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def get_batch(text):
    starts = torch.randint(len(text) - LENGTH - 1, (BATCH,)).tolist()
    tokens = torch.stack([text[start : start + LENGTH] for start in starts])
    targets = torch.stack([text[start + 1 : start + LENGTH + 1] for start in starts])
    return tokens, targets


def train(model, text, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        tokens, targets = get_batch(text)
        loss = model(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["lstm", "transformer"])
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    torch.manual_seed(0)
    text = torch.randint(VOCABULARY, (100_000,))
    model = Recurrent() if options.model == "lstm" else Transformer()
    started = time.perf_counter()
    train(model, text, options.steps)
    print("steps", options.steps, "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
