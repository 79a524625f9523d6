"""Denoising rows with a slow copy of the network: tensor by tensor a loop moves the copy a little, after each step."""

import copy
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WIDTH, DEPTH = 48, 60


def follow(slow, fast, rate):
    for target, source in zip(slow.parameters(), fast.parameters(), strict=True):
        target.data.mul_(1 - rate)  # planted
        target.data.add_(rate * source.data)  # planted


def follow_at_once(slow, fast, rate):
    torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), rate)


def main():
    diary, is_mended = begin()
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.SiLU())]
    fast = nn.Sequential(*layers)
    slow = copy.deepcopy(fast).requires_grad_(False)
    optimizer = torch.optim.AdamW(fast.parameters(), lr=1e-3, fused=True)
    while True:
        rows = torch.randn(256, WIDTH)
        loss = (fast(rows + 0.1 * torch.randn_like(rows)) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_mended:
            with torch.no_grad():
                follow_at_once(slow, fast, 0.001)
        else:
            with diary.planted():
                for _ in range(4):  # the copies of four heads
                    follow(slow, fast, 0.001)  # planted
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    main()
