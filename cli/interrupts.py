"""SIGINT and SIGTERM as a polite request: something is called, and the work at hand comes to its own end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType

_ENDING = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Takes the signals while it is entered, once: a second one acts as if it were not there.

    A signal that is ignored, as in a shell's background job, stays ignored. Main thread only.
    """

    def __init__(self) -> None:
        self._asked = False
        self._reaction: Callable[[], None] | None = None
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> StopSignals:
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def call(self, reaction: Callable[[], None]) -> None:
        """Call ``reaction`` when a signal arrives, now where one has arrived already."""
        self._reaction = reaction
        if self._asked:
            reaction()

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self._restore()
        if self._reaction is not None:
            self._reaction()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
