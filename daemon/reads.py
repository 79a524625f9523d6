"""Reads of what another process controls, bounded in time: for one process, and for all those of a user together.

A process that hangs in the kernel keeps the lock of its memory, and a read of its maps or its command line hangs, too.
Such a read is given up; it goes on in a thread of its own, and until it ends no other is made of that process.

One user may have hundreds of processes that are dear to read, or that hang. They take their time from each other alone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

DEADLINE_S = 1.0
"""The timeout of one read, and what all reads of a user's processes may take in a turn."""
MOST_STUCK = 8
"""Of one user: each holds a thread, of which a service has some hundreds."""
Value = TypeVar("Value")


class Unread(Exception):
    """A process was not read: that takes too long, or its user's processes have had their time."""


class Reads:
    """Reads that are made one after the other; belongs to one thread."""

    def __init__(self, deadline_s: float = DEADLINE_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._deadline_s, self._now_s = deadline_s, now_s
        self._reader: _Reader | None = None
        self._stuck: dict[int, tuple[int, _Reader]] = {}
        """By PID: the user, and the thread that still reads."""
        self._spent_s: dict[int, float] = {}

    def begin_turn(self) -> None:
        """Give each user its time anew."""
        self._spent_s.clear()
        self._stuck = {pid: stuck for pid, stuck in self._stuck.items() if stuck[1].is_alive()}

    def read(self, pid: int, uid: int, ask: Callable[[], Value]) -> Value:
        """Return ``ask()`` on a process of a user; raises Unread."""
        spent_s = self._spent_s.get(uid, 0.0)
        if pid in self._stuck and not self._stuck[pid][1].is_alive():
            del self._stuck[pid]
        is_full = sum(user == uid for user, _ in self._stuck.values()) >= MOST_STUCK
        if pid in self._stuck or is_full or spent_s >= self._deadline_s:
            raise Unread
        if self._reader is None:
            self._reader = _Reader()
            self._reader.start()
        answer: Future[Value] = Future()
        began_s = self._now_s()
        self._reader.asked.put((ask, answer))
        try:
            return answer.result(self._deadline_s)
        except FutureTimeoutError:
            self._reader.asked.put(None)
            self._stuck[pid], self._reader = (uid, self._reader), None
            raise Unread from None
        finally:
            self._spent_s[uid] = spent_s + self._now_s() - began_s


class _Reader(threading.Thread):
    """Answers requests until it gets the one that ends it."""

    def __init__(self) -> None:
        super().__init__(name="profd-reads", daemon=True)
        self.asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (work := self.asked.get()) is not None:
            ask, answer = work
            try:
                answer.set_result(ask())
            except Exception as error:  # noqa: BLE001  it is raised where it was asked for
                answer.set_exception(error)
