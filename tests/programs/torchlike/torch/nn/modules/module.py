"""As ``torch/nn/modules/module.py``: two frames stand around each ``forward``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..parameter import Parameter


class Module:
    training = True
    forward: Callable[..., Any]

    def parameters(self) -> Iterator[Parameter]:
        return iter(value for value in vars(self).values() if isinstance(value, Parameter))

    def train(self, mode: bool = True) -> Module:
        self.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        pass

    def _wrapped_call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        forward_call = self.forward
        return forward_call(*args, **kwargs)

    __call__: Callable[..., Any] = _wrapped_call_impl
