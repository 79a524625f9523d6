"""The questions to a GPU driver, and a memory of those without an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.answers import NoDriverAnswer, Why
from profd.daemon.gpu.devices import GpuDevice
from profd.daemon.gpu.nvmlsource import NvmlSource

T = TypeVar("T")
AGAIN_NS = 60 * SECOND_NS


class Questions:
    """Asks a source, and keeps in mind for each device what it lacks for ever.

    It also keeps in mind what to ask again each minute.
    """

    def __init__(self, source: NvmlSource, clock: Clock) -> None:
        self.source = source
        self.lost: dict[str, str] = {}
        self._clock = clock
        self._silent: dict[tuple[str, ...], tuple[NoDriverAnswer, int | None]] = {}

    def ask(
        self, question: Callable[..., T], gpu: GpuDevice, *what: str, then: tuple[Any, ...] = ()
    ) -> T | None:
        """Return the answer, None if there is none.

        ``what`` says which of the question's quantities is meant, and is remembered with it if the
        device lacks it; ``then`` are arguments that change each time.
        """
        if self.source.failure is not None or gpu.name in self.lost:
            return None
        key = (gpu.name, question.__name__, *what)
        known = self._silent.get(key)
        if known is not None and (known[1] is None or self._clock.now_ns() < known[1]):
            return None
        try:
            answer = question(gpu, *what, *then)
        except NoDriverAnswer as error:
            if error.why is Why.LOST:
                self.lost[gpu.name] = str(error)
            again_ns = {Why.LACKING: None, Why.REFUSED: self._clock.now_ns() + AGAIN_NS}.get(
                error.why, 0
            )
            self._silent[key] = error, again_ns
            return None
        self._silent.pop(key, None)
        return answer

    def why_not(
        self, question: Callable[..., object], gpu: GpuDevice, *what: str
    ) -> NoDriverAnswer | None:
        """Return why a question had no answer when it was last asked.

        None if it had one, or never was.
        """
        known = self._silent.get((gpu.name, question.__name__, *what))
        return known and known[0]
