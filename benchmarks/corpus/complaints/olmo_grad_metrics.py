"""A small language model whose trainer logs the norm of each gradient and weight in each step, one number at a time.

Complaint: allenai/OLMo, pull request 326, "improve speed of collecting metrics": norms, minima and maxima of each parameter are taken out of their
tensors one by one (`.item()`), in each step, for metrics and for clipping. Fix: keep them in tensors, join them, and read them once in a while.
"""

import math
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Language(nn.Module):
    def __init__(self, tokens=96, width=64, blocks=4):
        super().__init__()
        self.embedding, self.head = nn.Embedding(tokens, width), nn.Linear(width, tokens)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))

    def forward(self, x):
        return self.head(self.blocks(self.embedding(x)))


def collect_metrics(model):
    found, total = {}, 0.0
    for name, parameter in model.named_parameters():  # planted
        for kind, tensor in (("param", parameter.data), ("grad", parameter.grad)):  # planted
            found[f"{kind}/{name}.norm"] = tensor.norm().item()  # planted
            found[f"{kind}/{name}.min"] = tensor.min().item()  # planted
            found[f"{kind}/{name}.max"] = tensor.max().item()  # planted
        total += found[f"grad/{name}.norm"] ** 2
    return found, math.sqrt(total)


def main():
    diary, is_mended = begin()
    model, step = Language(), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    while True:
        text = torch.randint(0, 96, (4, 33))
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if not is_mended or step % 100 == 0:
            with diary.planted():
                metrics, norm = collect_metrics(model)  # planted
            if step % 500 == 0:
                print(f"{step} {norm:.3f} {len(metrics)}", flush=True)
        optimizer.step()
        step += 1
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(26)
    torch.set_num_threads(1)
    main()
