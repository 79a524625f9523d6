"""Stands for torch's extension module ``torch._C``: here the time of a step goes by."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._tensor import Tensor


def work(seconds: float) -> None:
    """Compute for a twentieth of the time and wait for the rest: many of these programs share a core."""
    end = time.monotonic() + seconds
    while time.monotonic() < end - 0.95 * seconds:
        pass
    time.sleep(max(end - time.monotonic(), 0))


class ImperativeEngine:
    """As ``torch._C._EngineBase``, which ``torch/autograd/variable.py`` makes one of."""

    def run_backward(self, t_outputs: Sequence[Tensor], *_: object, **__: object) -> tuple[()]:
        work(t_outputs[0].seconds)
        return ()
