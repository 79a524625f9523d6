"""Steps at the top level of the script, through ``while step < n`` and ``step += 1``. Usage: while_module.py DIARY."""

import diary
import torch
from torch.standin import Network

STEPS = 1_000_000

model = Network(0.025)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
running = 0.0
step = 0
diary.begin()
while step < STEPS:
    optimizer.zero_grad()
    loss = model([0.5] * 8)
    loss.backward()
    optimizer.step()
    running = 0.9 * running + 0.1 * loss.item()
    step += 1
    diary.stepped(step)
