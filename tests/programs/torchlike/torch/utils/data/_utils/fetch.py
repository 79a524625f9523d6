"""As ``torch/utils/data/_utils/fetch.py``: brings the items of a batch."""

from __future__ import annotations

from typing import Any

from ..dataset import Dataset
from .collate import default_collate


class _MapDatasetFetcher:
    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.collate_fn = default_collate

    def fetch(self, possibly_batched_index: list[int]) -> list[Any]:
        data = [self.dataset[idx] for idx in possibly_batched_index]
        return self.collate_fn(data)
