"""Steps through ``for batch in tqdm(loader)``, and names no counter of its own. Usage: tqdm_loop.py DIARY."""

import os
from collections.abc import Iterator

import diary
from tqdm import tqdm


def loader() -> Iterator[list[float]]:
    while True:
        diary.work(0.02)
        yield [0.5] * 8


def train() -> None:
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        for batch in tqdm(loader(), file=nowhere):
            diary.work(0.03 + 0.0 * sum(batch))
            diary.stepped()


diary.begin()
train()
