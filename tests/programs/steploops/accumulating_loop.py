"""Steps as later versions of Hugging Face's Trainer do: a loop over updates, each with the batches of one.

The batches of an epoch are counted in a local beside it. Usage: accumulating_loop.py DIARY.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import diary
import torch
from torch.standin import Network, loader

UPDATES = 75
BATCHES_AN_UPDATE = 2


class State:
    global_step = 0


class Trainer:
    def __init__(self) -> None:
        self.state = State()
        self.model = Network(0.03)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self) -> None:
        self._inner_training_loop(num_train_epochs=1_000)

    def _inner_training_loop(self, num_train_epochs: int) -> None:
        for epoch in range(num_train_epochs):
            self._run_epoch(epoch, iter(loader(UPDATES * BATCHES_AN_UPDATE, 0.005)))

    def _run_epoch(self, epoch: int, epoch_iterator: Iterator[Any]) -> None:
        step = -1
        for _update_step in range(UPDATES):
            batch_samples = [next(epoch_iterator) for _ in range(BATCHES_AN_UPDATE)]
            for _i, inputs in enumerate(batch_samples):
                step += 1
                self.training_step(inputs, epoch)
                diary.batched()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.state.global_step += 1
            diary.stepped(self.state.global_step)

    def training_step(self, inputs: list[Any], epoch: int) -> float:
        loss = self.model(inputs) / BATCHES_AN_UPDATE
        loss.backward()
        return float(loss.item()) + 0.0 * epoch


diary.begin()
Trainer().train()
