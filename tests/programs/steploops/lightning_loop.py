"""Steps as Lightning does: the index of a batch is a local of a function that is called anew each step.

Its own counts are attributes; the optimizer is given a closure with the forward and backward pass. Usage:
lightning_loop.py DIARY.
"""

from __future__ import annotations

from typing import Any

import diary
import torch
from torch.standin import Network, loader

BATCHES = 150


class Fetcher:
    def __init__(self) -> None:
        self.fetched = -1
        self.batches = iter(loader(BATCHES, 0.005))

    def __next__(self) -> tuple[Any, int]:
        batch = next(self.batches)
        self.fetched += 1
        return batch, self.fetched


class TrainingEpochLoop:
    def __init__(self) -> None:
        self.global_step = 0
        self.model = Network(0.03)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self, fetcher: Fetcher) -> None:
        while True:
            try:
                self.advance(fetcher)
            except StopIteration:
                return

    def advance(self, fetcher: Fetcher) -> None:
        batch, batch_idx = next(fetcher)
        self.optimize(batch, batch_idx)
        self.global_step += 1
        diary.stepped(self.global_step)

    def optimize(self, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        def closure() -> float:
            loss = self.model(batch)
            self.optimizer.zero_grad()
            loss.backward()
            return float(loss.item()) + 0.0 * batch_idx

        self.optimizer.step(closure)


class FitLoop:
    current_epoch = 0

    def run(self) -> None:
        epochs = TrainingEpochLoop()
        while self.current_epoch < 1_000:
            epochs.run(Fetcher())
            self.current_epoch += 1


diary.begin()
FitLoop().run()
