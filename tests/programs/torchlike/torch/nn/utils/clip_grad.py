"""As ``torch/nn/utils/clip_grad.py``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..._tensor import Tensor

if TYPE_CHECKING:
    from ..parameter import Parameter


def clip_grad_norm_(parameters: Iterable[Parameter], max_norm: float) -> Tensor:
    return Tensor(min(sum(parameter.value for parameter in parameters), max_norm))
