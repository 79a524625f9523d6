"""As ``torch/nn/functional.py``, of which a loss is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._tensor import Tensor


def cross_entropy(input: Tensor, target: object) -> Tensor:
    return input * 1.0
