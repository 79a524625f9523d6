"""Steps in ``Trainer.fit``, the work of a step being a method of its own. Usage: fit_loop.py DIARY."""

from __future__ import annotations

from typing import Any

import diary
import torch
from torch.standin import Network, loader


class Trainer:
    def __init__(self) -> None:
        self.model = Network(0.03)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.history: list[float] = []

    def fit(self, epochs: int) -> None:
        for _epoch in range(epochs):
            for batch_index, batch in enumerate(loader(120, 0.005)):
                self.history.append(self.training_step(batch))
                diary.stepped(batch_index)
            self.history.clear()

    def training_step(self, batch: list[Any]) -> float:
        self.optimizer.zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()
        self.optimizer.step()
        return float(loss.item())

    def compute_loss(self, batch: list[Any]) -> Any:  # noqa: ANN401
        return self.model(batch)


diary.begin()
Trainer().fit(epochs=1_000)
