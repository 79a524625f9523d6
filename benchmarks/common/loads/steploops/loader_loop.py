"""Steps through ``for batch in loader`` and counts nothing itself, in epochs of 6 s. Usage: loader_loop.py DIARY."""

import diary
import torch
from torch.standin import Network, loader


def main() -> None:
    model = Network(0.015)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = loader(300, 0.005)
    for _ in range(1_000):
        for features, _labels in batches:
            loss = model(features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()


diary.begin()
main()
