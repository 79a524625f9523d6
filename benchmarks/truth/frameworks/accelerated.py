"""A loop of Hugging Face's Accelerate: it prepares loader, model, optimizer and schedule, and calls backward.

Usage: accelerated.py [--steps N]
"""

import argparse
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 256


def make_network():
    return nn.Sequential(nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def train(steps):
    accelerator = Accelerator(cpu=True)
    network = make_network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    loader = DataLoader(TensorDataset(torch.randn(12800, WIDTH), torch.randint(10, (12800,))), 64, shuffle=True)
    network, optimizer, loader, schedule = accelerator.prepare(network, optimizer, loader, schedule)
    loss_fn = nn.CrossEntropyLoss()
    made = 0
    while made < steps:
        for features, labels in loader:
            with accelerator.accumulate(network):
                loss = loss_fn(network(features), labels)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            made += 1
            if made % 50 == 0:
                accelerator.print(f"step {made}: loss {loss.item():.4f}")
            if made == steps:
                break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    torch.manual_seed(0)
    started = time.perf_counter()
    train(options.steps)
    print("steps", options.steps, "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
