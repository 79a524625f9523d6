"""As ``torch/autograd/graph.py``: the last frame before the engine, which is no Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .variable import Variable

if TYPE_CHECKING:
    from .._tensor import Tensor


def _engine_run_backward(t_outputs: Sequence[Tensor], *args: object, **kwargs: object) -> tuple[()]:
    return Variable._execution_engine.run_backward(t_outputs, *args, **kwargs)
