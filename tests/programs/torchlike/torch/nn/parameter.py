"""As ``torch/nn/parameter.py``; here it knows how long an update of it takes."""

from __future__ import annotations

from .._tensor import Tensor


class Parameter(Tensor):
    pass
