"""Steps in epochs of half a second, with an evaluation of a tenth after each. Usage: short_epochs.py DIARY."""

import diary
import torch
from torch.standin import Network, loader


@torch.no_grad()
def validate(model: torch.nn.Module) -> float:
    return float(sum(model(batch).item() for batch in loader(12)))


def main() -> None:
    model = Network(0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_loader = loader(25)
    best = 0.0
    for _epoch in range(100_000):
        for i, batch in enumerate(train_loader):
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            optimizer.step()
            diary.stepped(i)
        best = max(best, validate(model))


diary.begin()
main()
