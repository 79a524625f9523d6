"""As ``torch/optim/sgd.py``: a step goes over the groups of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._C import work
from ..nn.parameter import Parameter
from .optimizer import Optimizer, _use_grad_for_differentiable


class SGD(Optimizer):
    def __init__(self, params: Iterable[Parameter], lr: float = 0.001) -> None:
        super().__init__(params, lr)

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            loss = closure()
        for group in self.param_groups:
            sgd(group["params"], lr=group["lr"])
        return loss


def sgd(params: Sequence[Parameter], *, lr: float) -> None:
    _single_tensor_sgd(params, lr=lr)


def _single_tensor_sgd(params: Sequence[Parameter], *, lr: float) -> None:
    for i, param in enumerate(params):
        work(param.seconds)
        param.value += lr * i
