"""As ``torch/nn/modules/loss.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..functional import cross_entropy
from .module import Module

if TYPE_CHECKING:
    from ..._tensor import Tensor


class CrossEntropyLoss(Module):
    def forward(self, input: Tensor, target: object) -> Tensor:
        return cross_entropy(input, target)
