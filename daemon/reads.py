"""Reads of what another process controls, bounded in time.

There is a bound for one process, and one for all those of a user together.

A process that hangs in the kernel keeps the lock of its memory, and a read of its maps or its
command line hangs, too. Such a read is given up; it goes on in a thread of its own, and until it
ends no other is made of that process.

One user may have hundreds of processes that are dear to read, or that hang. They take their time
from each other alone.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

DEADLINE_S = 1.0
"""The timeout of one read, and the CPU time of all reads of a user's processes in a turn.

One given up counts whole.
"""
MOST_STUCK = 8
"""Of one user: each holds a thread, of which a service has some hundreds."""
Value = TypeVar("Value")


class Unread(Exception):
    """A process was not read: that takes too long, or its user's processes have had their time."""


class Reads:
    """Reads that are made one after the other; belongs to one thread."""

    def __init__(
        self,
        deadline_s: float = DEADLINE_S,
        user_s: float = DEADLINE_S,
        all_s: float = math.inf,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """Bound one read, those of a user and those of all in a turn.

        ``cpu_s`` is called in the thread that reads.
        """
        self._deadline_s, self._user_s, self._all_s, self._cpu_s = deadline_s, user_s, all_s, cpu_s
        self._reader: _Reader | None = None
        self._stuck: dict[int, tuple[int, _Reader]] = {}
        """By PID: the user, and the thread that still reads."""
        self._spent_s: defaultdict[int, float] = defaultdict(float)

    def begin_turn(self) -> None:
        """Give each user its time anew."""
        self._spent_s.clear()
        self._stuck = {pid: stuck for pid, stuck in self._stuck.items() if stuck[1].is_alive()}

    def read(self, pid: int, uid: int, ask: Callable[[], Value]) -> Value:
        """Return ``ask()`` on a process of a user; raises Unread."""
        if pid in self._stuck and not self._stuck[pid][1].is_alive():
            del self._stuck[pid]
        is_full = sum(user == uid for user, _ in self._stuck.values()) >= MOST_STUCK
        is_late = self._spent_s[uid] >= self._user_s or sum(self._spent_s.values()) >= self._all_s
        if pid in self._stuck or is_full or is_late:
            raise Unread
        if self._reader is None:
            self._reader = _Reader(self._cpu_s)
            self._reader.start()
        answer: Future[tuple[Value, float]] = Future()
        self._reader.asked.put((ask, answer))
        try:
            value, spent_s = answer.result(self._deadline_s)
        except FutureTimeoutError:
            self._reader.asked.put(None)
            self._stuck[pid], self._reader = (uid, self._reader), None
            self._spent_s[uid] += self._deadline_s
            raise Unread from None
        self._spent_s[uid] += spent_s
        return value


class _Reader(threading.Thread):
    """Answers requests until it gets the one that ends it."""

    def __init__(self, cpu_s: Callable[[], float]) -> None:
        super().__init__(name="profd-reads", daemon=True)
        self._cpu_s = cpu_s
        self.asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = (
            queue.SimpleQueue()
        )

    def run(self) -> None:
        while (work := self.asked.get()) is not None:
            ask, answer = work
            began_s = self._cpu_s()
            try:
                answer.set_result((ask(), self._cpu_s() - began_s))
            except Exception as error:  # noqa: BLE001  it is raised where it was asked for
                answer.set_exception(error)
