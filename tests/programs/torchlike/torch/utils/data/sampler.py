"""As ``torch/utils/data/sampler.py``: what a batch is made of."""

from __future__ import annotations

from collections.abc import Iterator

from .dataset import Dataset


class SequentialSampler:
    def __init__(self, data_source: Dataset) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))


class BatchSampler:
    def __init__(self, sampler: SequentialSampler, batch_size: int) -> None:
        self.sampler = sampler
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[list[int]]:
        batch = []
        for idx in self.sampler:
            batch.append(idx)
            if len(batch) == self.batch_size:
                yield batch
                batch = []

    def __len__(self) -> int:
        return len(self.sampler.data_source) // self.batch_size
