"""As ``torch/utils/data/_utils/collate.py``: makes a batch of items."""

from __future__ import annotations

from typing import Any


def default_collate(batch: list[Any]) -> list[Any]:
    return [list(column) for column in zip(*batch)]  # noqa: B905
