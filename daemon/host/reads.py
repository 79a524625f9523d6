"""Reads of /proc that may never end, each in time: some wait for a lock of the process, whoever holds that.

A process that hangs in the kernel keeps the lock of its memory, and with it whoever asks for its maps or its command
line. Such a read is given up; it goes on in a thread of its own, and until it ends no other is made of that process.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

DEADLINE_S = 1.0
Value = TypeVar("Value")
_Work = tuple[Callable[[], Any], "queue.SimpleQueue[Any]"]


class Reads:
    """Reads that are made one after the other; belongs to one thread."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._reader: _Reader | None = None
        self._stuck: dict[int, _Reader] = {}

    def read(self, pid: int, ask: Callable[[], Value], otherwise: Value) -> Value:
        """Return what ``ask`` says of a process; ``otherwise`` where it does not in time, or was not before."""
        if pid in self._stuck:
            if self._stuck[pid].is_alive():
                return otherwise
            del self._stuck[pid]
        if self._reader is None:
            self._reader = _Reader()
            self._reader.start()
        answers: queue.SimpleQueue[tuple[Value | None, Exception | None]] = queue.SimpleQueue()
        self._reader.asked.put((ask, answers))
        try:
            value, error = answers.get(timeout=self._deadline_s)
        except queue.Empty:
            self._reader.asked.put(None)
            self._stuck[pid], self._reader = self._reader, None
            return otherwise
        if error is not None:
            raise error
        return value  # type: ignore[return-value]


class _Reader(threading.Thread):
    """Answers requests until it gets the one that ends it."""

    def __init__(self) -> None:
        super().__init__(name="profd-reads", daemon=True)
        self.asked: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (work := self.asked.get()) is not None:
            ask, answers = work
            try:
                answers.put((ask(), None))
            except Exception as error:  # noqa: BLE001  it is raised where it was asked for
                answers.put((None, error))
