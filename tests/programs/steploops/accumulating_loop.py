"""Steps as later versions of Hugging Face's Trainer do: a loop over updates, each with the batches of one.

The batches of an epoch are counted in a local beside it. Usage: accumulating_loop.py DIARY.
"""

from collections.abc import Iterator

import diary

UPDATES = 75
BATCHES_AN_UPDATE = 2


class Trainer:
    def train(self) -> None:
        self._inner_training_loop(num_train_epochs=1_000)

    def _inner_training_loop(self, num_train_epochs: int) -> None:
        for epoch in range(num_train_epochs):
            self._run_epoch(epoch, self.batches())

    def _run_epoch(self, epoch: int, epoch_iterator: Iterator[list[float]]) -> None:
        step = -1
        for _update_step in range(UPDATES):
            batch_samples = [next(epoch_iterator) for _ in range(BATCHES_AN_UPDATE)]
            for _i, inputs in enumerate(batch_samples):
                step += 1
                self.training_step(inputs, epoch)
            diary.stepped()

    def batches(self) -> Iterator[list[float]]:
        for _ in range(UPDATES * BATCHES_AN_UPDATE):
            diary.work(0.005)
            yield [0.5] * 8

    def training_step(self, inputs: list[float], epoch: int) -> float:
        for _ in range(3):
            diary.work(0.01)
        return sum(inputs) + 0.0 * epoch


diary.begin()
Trainer().train()
