"""Instruction tuning with LoRA on a file of JSON lines: the dataset walks it from the start to each line."""

import itertools
import json
import math
import random
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

EXAMPLES, LENGTH, IGNORED = 16000, 96, -100


def write_examples(path):
    rng = random.Random(8)
    words = "sort list write poem about river explain why sum numbers translate city name short long".split()
    with path.open("w") as file:
        for number in range(EXAMPLES):
            ask, answer = (" ".join(rng.choices(words, k=k)) for k in (rng.randint(4, 8), rng.randint(6, 16)))
            meta = {"id": f"seed-{number:06d}", "source": "made-up", "license": "cc0", "quality": rng.random()}
            file.write(json.dumps({"instruction": ask, "output": answer, "meta": meta}) + "\n")


class JsonLines(Dataset):
    """Instructions and answers as bytes; only the answer is learned."""

    def __init__(self, path, diary, is_indexed):
        self.path, self.diary, self.offsets = path, diary, None
        if is_indexed:
            with path.open("rb") as file:
                self.offsets = [0, *itertools.accumulate(len(line) for line in file)][:-1]
            self.file = path.open("rb")

    def __len__(self):
        return EXAMPLES

    def line(self, index):
        if self.offsets is not None:
            self.file.seek(self.offsets[index])
            return self.file.readline()
        with self.diary.planted(), self.path.open() as file:
            return next(itertools.islice(file, index, None))  # planted

    def __getitem__(self, index):
        row = json.loads(self.line(index))  # planted
        prompt = f"### {row['instruction']}\n> ".encode()
        answer = row["output"].encode() + b"\0"
        tokens = torch.zeros(LENGTH + 1, dtype=torch.long)
        text = (prompt + answer)[: LENGTH + 1]
        tokens[: len(text)] = torch.tensor(list(text))
        labels = torch.full((LENGTH,), IGNORED)
        labels[len(prompt) - 1 : len(text) - 1] = tokens[len(prompt) : len(text)]
        return tokens[:-1], labels


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class ByteLM(nn.Module):
    def __init__(self, dim=128, heads=4, depth=3):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, dim), nn.Embedding(LENGTH, dim)
        self.layers = nn.Sequential(*(Layer(dim, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 256)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.layers(x)))


def with_adapters(model):
    model.requires_grad_(False)
    for layer in model.layers:
        layer.qkv, layer.out = LoRALinear(layer.qkv), LoRALinear(layer.out)
    return model


def finetune(diary, is_mended):
    path = Path(tempfile.mkdtemp(prefix="instruct_")) / "train.jsonl"
    write_examples(path)
    loader = DataLoader(JsonLines(path, diary, is_mended), batch_size=8, shuffle=True)
    model = with_adapters(ByteLM())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    for epoch in itertools.count():
        for step, (tokens, labels) in enumerate(loader):  # planted
            loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            diary.stepped()
            if step % 50 == 0:
                print({"epoch": epoch, "step": step, "loss": round(loss.item(), 4)}, flush=True)


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    finetune(*begin())
