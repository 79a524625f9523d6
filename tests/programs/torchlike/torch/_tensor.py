"""As ``torch/_tensor.py``: a tensor, of which only the way into the backward pass is there."""

from __future__ import annotations

from . import autograd


class Tensor:
    """A number, and how long the backward pass from it takes."""

    def __init__(self, value: float = 0.0, seconds: float = 0.0) -> None:
        self.value = value
        self.seconds = seconds

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: object = None,
    ) -> None:
        autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def item(self) -> float:
        return self.value

    def detach(self) -> Tensor:
        return Tensor(self.value)

    def __mul__(self, other: float) -> Tensor:
        return Tensor(self.value * other, self.seconds)

    def __truediv__(self, other: float) -> Tensor:
        return Tensor(self.value / other, self.seconds)
