"""Steps through batches at the top level of the script, epoch after short epoch. Usage: module_loop.py DIARY."""

import diary
import torch
from torch.standin import Network, work

model = Network(0.055)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def evaluate() -> None:
    work(0.05)


diary.begin()
for _epoch in range(10_000):
    for _batch in range(25):
        loss = model([0.5] * 8)
        loss.backward()
        optimizer.step()
        diary.stepped()
    evaluate()
