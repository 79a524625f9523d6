"""Steps through the batches of epochs, with half a second of evaluation after each. Usage: nested_loops.py DIARY."""

import diary
import torch
from torch.standin import Network, loader

BATCHES = 200


@torch.no_grad()
def evaluate(model: torch.nn.Module) -> None:
    model.eval()
    for _i, batch in enumerate(loader(30)):
        model(batch)
    model.train()


def train() -> None:
    model = Network(0.04)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(1_000):
        for i, batch in enumerate(loader(BATCHES)):
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            optimizer.step()
            diary.stepped(i)
        evaluate(model)


diary.begin()
train()
