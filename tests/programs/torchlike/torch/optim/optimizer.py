"""As ``torch/optim/optimizer.py``: two wrappers stand around an optimizer's step."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Callable  # noqa: UP035

from ..nn.parameter import Parameter

Step = Callable[..., Any]


def _use_grad_for_differentiable(func: Step) -> Step:
    def _use_grad(*args: Any, **kwargs: Any) -> Any:
        ret = func(*args, **kwargs)
        return ret

    functools.update_wrapper(_use_grad, func)
    return _use_grad


class Optimizer:
    def __init__(self, params: Iterable[Parameter], lr: float = 0.001) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(params), "lr": lr}]
        self._patch_step_function()

    step: Step

    @staticmethod
    def profile_hook_step(func: Step) -> Step:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            out = func(*args, **kwargs)
            return out

        return wrapper

    def _patch_step_function(self) -> None:
        hooked = getattr(self.__class__.step, "hooked", None)
        if not hooked:
            self.__class__.step = self.profile_hook_step(self.__class__.step)
            self.__class__.step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.value = 0.0
