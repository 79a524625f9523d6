"""As ``torch/autograd/__init__.py``: the function that ``Tensor.backward`` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .graph import _engine_run_backward

if TYPE_CHECKING:
    from .._tensor import Tensor


def backward(
    tensors: Tensor,
    grad_tensors: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Tensor | None = None,
    inputs: object = None,
) -> None:
    _engine_run_backward((tensors,), grad_tensors, retain_graph, create_graph, inputs, allow_unreachable=True)
