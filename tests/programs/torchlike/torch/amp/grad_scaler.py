"""As ``torch/amp/grad_scaler.py``: stands between the loop and the optimizer's step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..optim.optimizer import Optimizer


class GradScaler:
    def __init__(self, device: str = "cuda", enabled: bool = True) -> None:
        self._enabled = enabled
        self._growth_tracker = 0

    def scale(self, outputs: Tensor) -> Tensor:
        return outputs * 1.0

    def unscale_(self, optimizer: Optimizer) -> None:
        pass

    def step(self, optimizer: Optimizer) -> None:
        self._maybe_opt_step(optimizer)

    def _maybe_opt_step(self, optimizer: Optimizer) -> None:
        optimizer.step()

    def update(self) -> None:
        """Count up to where the scale would grow, as torch's own does."""
        self._growth_tracker = (self._growth_tracker + 1) % 2000
