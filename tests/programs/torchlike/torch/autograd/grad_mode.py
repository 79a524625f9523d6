"""As ``torch/autograd/grad_mode.py``: around what needs no gradients."""

from __future__ import annotations

from ..utils._contextlib import _DecoratorContextManager


class no_grad(_DecoratorContextManager):
    pass
