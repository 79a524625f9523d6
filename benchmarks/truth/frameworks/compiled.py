"""A loop over a compiled model: compiling at the first steps, and once more for a batch of another size.

Usage: compiled.py [--backend inductor|aot_eager|eager] [--steps N]
"""

import argparse
import time

import torch
from torch import nn

WIDTH = 512


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.head = nn.Linear(WIDTH, 100)

    def forward(self, hidden):
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden)) * torch.sigmoid(hidden)
        return self.head(hidden)


def train(model, batches, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    for step in range(steps):
        features, labels = batches[0 if step < steps // 2 else step % len(batches)]
        optimizer.zero_grad()
        loss = loss_fn(model(features), labels)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    batches = [(torch.randn(size, WIDTH), torch.randint(100, (size,))) for size in (256, 192)]
    model = torch.compile(Network(), backend=options.backend)
    started = time.perf_counter()
    train(model, batches, options.steps)
    print("steps", options.steps, "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
