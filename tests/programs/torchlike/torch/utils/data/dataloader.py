"""As ``torch/utils/data/dataloader.py``, without workers: each iterator counts the batches that it gave."""

from __future__ import annotations

from typing import Any

from ._utils.fetch import _MapDatasetFetcher
from .dataset import Dataset
from .sampler import BatchSampler, SequentialSampler


class DataLoader:
    def __init__(self, dataset: Dataset, batch_size: int = 1) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.batch_sampler = BatchSampler(SequentialSampler(dataset), batch_size)
        self._iterator = None

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return _SingleProcessDataLoaderIter(self)

    def __iter__(self) -> _BaseDataLoaderIter:
        return self._get_iterator()

    def __len__(self) -> int:
        return len(self.batch_sampler)


class _BaseDataLoaderIter:
    def __init__(self, loader: DataLoader) -> None:
        self._dataset = loader.dataset
        self._num_workers = 0
        self._index_sampler = loader.batch_sampler
        self._timeout = 0
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._profile_name = f"enumerate(DataLoader)#{self.__class__.__name__}.__next__"

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _next_index(self) -> list[int]:
        return next(self._sampler_iter)

    def _next_data(self) -> list[Any]:
        raise NotImplementedError

    def __next__(self) -> list[Any]:
        data = self._next_data()
        self._num_yielded += 1
        return data

    def __len__(self) -> int:
        return len(self._index_sampler)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._dataset_fetcher = _MapDatasetFetcher(self._dataset)

    def _next_data(self) -> list[Any]:
        index = self._next_index()
        return self._dataset_fetcher.fetch(index)
