"""Steps through the samples of an epoch in strides of 32, ``range(0, n, 32)``. Usage: stride_loop.py DIARY."""

import diary
import torch
from torch.standin import Network

SAMPLES = 32 * 400
BATCH = 32


def main() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = [0.5] * SAMPLES
    for _epoch in range(1_000):
        for start in range(0, SAMPLES, BATCH):
            batch = samples[start : start + BATCH]
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped(start)


diary.begin()
main()
