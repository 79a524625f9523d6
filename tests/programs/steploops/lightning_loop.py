"""Steps as Lightning does: the index of a batch is a local of a function that is called anew each step.

Its own counts are attributes. Usage: lightning_loop.py DIARY.
"""

from collections.abc import Iterator

import diary

BATCHES = 150


class Fetcher:
    def __init__(self) -> None:
        self.fetched = -1
        self.batches = self._load()

    def _load(self) -> Iterator[list[float]]:
        for _ in range(BATCHES):
            diary.work(0.005)
            yield [0.5] * 8

    def __next__(self) -> tuple[list[float], int]:
        batch = next(self.batches)
        self.fetched += 1
        return batch, self.fetched


class TrainingEpochLoop:
    global_step = 0

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
        diary.stepped()

    def optimize(self, batch: list[float], batch_idx: int) -> float:
        for _ in range(3):
            diary.work(0.01)
        return sum(batch) + 0.0 * batch_idx


class FitLoop:
    current_epoch = 0

    def run(self) -> None:
        epochs = TrainingEpochLoop()
        while self.current_epoch < 1_000:
            epochs.run(Fetcher())
            self.current_epoch += 1


diary.begin()
FitLoop().run()
