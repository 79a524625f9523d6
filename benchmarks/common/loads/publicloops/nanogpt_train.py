"""Steps in the form of karpathy/nanoGPT, ``train.py``: at the top level of the script, ``iter_num`` in an endless loop.

Gradients are accumulated over micro-steps, the next batch is fetched behind each forward pass, the loss is estimated
now and then, and a line is printed every few iterations. Usage: nanogpt_train.py DIARY.
"""

from __future__ import annotations

import time
from typing import Any

import diary
import torch
from torch.standin import Network, work

gradient_accumulation_steps = 5
eval_interval, eval_iters, log_interval = 60, 20, 10
max_iters = 600_000
iter_num = 0
local_iter_num = 0

model = Network(0.008)
optimizer = torch.optim.SGD(model.parameters(), lr=6e-4)
scaler = torch.amp.GradScaler("cuda", enabled=False)


def get_batch(split: str) -> tuple[list[int], list[int]]:
    work(0.001)
    return [len(split)] * 8, [1] * 8


@torch.no_grad()
def estimate_loss() -> dict[str, float]:
    means = {}
    model.eval()
    for split in ("train", "val"):
        total = 0.0
        for _k in range(eval_iters):
            X, Y = get_batch(split)
            total += model(X, Y).item()
        means[split] = total / eval_iters
    model.train()
    return means


diary.begin()
inputs: Any
inputs, targets = get_batch("train")
t0 = time.time()
while True:
    rate = 6e-4 * min(1.0, iter_num / 2_000)
    for group in optimizer.param_groups:
        group["lr"] = rate
    if iter_num % eval_interval == 0:
        found = estimate_loss()
        print(f"step {iter_num}: train loss {found['train']:.4f}, val loss {found['val']:.4f}", flush=True)
    for micro_step in range(gradient_accumulation_steps):
        loss = model(inputs, targets, micro_step) / gradient_accumulation_steps
        inputs, targets = get_batch("train")
        scaler.scale(loss).backward()
        diary.batched()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    t1 = time.time()
    dt, t0 = t1 - t0, t1
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {dt * 1000:.2f}ms", flush=True)
    iter_num += 1
    local_iter_num += 1
    diary.stepped(iter_num)
    if iter_num > max_iters:
        break
