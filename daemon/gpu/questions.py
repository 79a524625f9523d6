"""The questions to a GPU driver, and a memory of those without an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.answers import NoDriverAnswer, Why
from profd.daemon.gpu.devices import GpuDevice
from profd.daemon.gpu.nvmlsource import NvmlSource

T = TypeVar("T")


class Questions:
    """Asks a driver about one device, and keeps in mind what that lacks for ever.

    It also keeps in mind what to ask again each minute. ``lost`` has the words of the driver once
    the device does not answer any more; it is empty before.
    """

    def __init__(self, source: NvmlSource, gpu: GpuDevice, clock: Clock) -> None:
        self.source, self.gpu, self._clock = source, gpu, clock
        self.lost = ""
        self._silent: dict[tuple[str, ...], tuple[NoDriverAnswer, int | None]] = {}

    def ask(self, question: Callable[..., T], *what: str, then: tuple[Any, ...] = ()) -> T | None:
        """Return the answer, None if there is none.

        ``what`` says which of the question's quantities is meant, and is remembered with it if the
        device lacks it; ``then`` are arguments that change each time.
        """
        if self.source.failure is not None or self.lost:
            return None
        key = (question.__name__, *what)
        _, again_ns = self._silent.get(key, (None, 0))
        if again_ns is None or self._clock.now_ns() < again_ns:
            return None
        try:
            answer = question(self.gpu, *what, *then)
        except NoDriverAnswer as error:
            if error.why is Why.LOST:
                self.lost = str(error)
            later_ns = self._clock.now_ns() + 60 * SECOND_NS if error.why is Why.REFUSED else 0
            self._silent[key] = error, None if error.why is Why.LACKING else later_ns
            return None
        self._silent.pop(key, None)
        return answer

    def why_not(self, question: Callable[..., object], *what: str) -> NoDriverAnswer | None:
        """Return why a question had no answer when it was last asked.

        None if it had one, or never was.
        """
        known = self._silent.get((question.__name__, *what))
        return known and known[0]
