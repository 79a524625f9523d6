"""Reads of what another process controls, bounded in time.

There is a bound for one process, and one for all processes of a user together.

A process that hangs in the kernel holds the lock of its memory, so that a read of its maps or its
command line hangs, too. Such a read is given up; it goes on in its own thread, and until it ends
that process is not read again.

One user may have hundreds of processes that are slow to read, or that hang. They use up only that
user's time.
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

from profd.daemon import processes

DEADLINE_S = 1.0
"""The timeout of one read, and the CPU time of all reads of a user's processes in a turn.

A read that is given up counts in full.
"""
MOST_STUCK = 8
"""The limit per user: each holds a thread, of which a service has some hundreds."""
Value = TypeVar("Value")


class Unread(Exception):
    """A process was not read: it takes too long, or its user's time is used up."""


class BoundedReads:
    """Reads that are made one after the other; belongs to one thread."""

    def __init__(
        self,
        deadline_s: float = DEADLINE_S,
        user_s: float = DEADLINE_S,
        all_s: float = math.inf,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """Bound the time of one read, of all reads of a user, and of all reads in a turn.

        ``cpu_s`` is called in the thread that reads.
        """
        self._deadline_s, self._user_s, self._all_s, self._cpu_s = deadline_s, user_s, all_s, cpu_s
        self._reader: _Reader | None = None
        self._stuck: dict[int, tuple[int, _Reader]] = {}
        """By PID: the user, and the thread that still reads."""
        self._spent_s: defaultdict[int, float] = defaultdict(float)

    def begin_turn(self) -> None:
        """Begin a turn, in which each user has the full time again."""
        self._spent_s.clear()
        self._stuck = {pid: stuck for pid, stuck in self._stuck.items() if stuck[1].is_alive()}

    def read(self, pid: int, ask: Callable[[int], Value]) -> Value:
        """Return ``ask(pid)`` at the expense of the process's user; raises Unread."""
        uid = processes.owner_uid(pid) or 0
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
        self._reader.asked.put((pid, ask, answer))
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
        self.asked: queue.SimpleQueue[tuple[int, Callable[[int], Any], Future[Any]] | None] = (
            queue.SimpleQueue()
        )

    def run(self) -> None:
        while (work := self.asked.get()) is not None:
            pid, ask, answer = work
            began_s = self._cpu_s()
            try:
                answer.set_result((ask(pid), self._cpu_s() - began_s))
            except Exception as error:  # noqa: BLE001  it is raised in the thread that asked
                answer.set_exception(error)
