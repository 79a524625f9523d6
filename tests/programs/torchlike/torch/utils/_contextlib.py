"""As ``torch/utils/_contextlib.py``: contexts that are decorators, too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class _DecoratorContextManager:
    def __call__(self, orig_func: Callable[..., Any]) -> Callable[..., Any]:
        return context_decorator(self, orig_func)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def context_decorator(ctx: _DecoratorContextManager, func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def decorate_context(*args: Any, **kwargs: Any) -> Any:
        with ctx:
            return func(*args, **kwargs)

    return decorate_context
