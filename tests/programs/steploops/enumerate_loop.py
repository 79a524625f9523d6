"""Steps through ``for i, x in enumerate(...)``. Usage: enumerate_loop.py DIARY."""

from collections.abc import Iterator

import diary


def batches() -> Iterator[list[float]]:
    while True:
        yield [0.5] * 8


def train() -> None:
    total = 0.0
    for i, batch in enumerate(batches()):
        total += sum(batch) / (i + 1)
        diary.work(0.05)
        diary.stepped()


diary.begin()
train()
