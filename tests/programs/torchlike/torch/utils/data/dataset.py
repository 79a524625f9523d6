"""As ``torch/utils/data/dataset.py``."""

from __future__ import annotations

from typing import Any


class Dataset:
    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError
