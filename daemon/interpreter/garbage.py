"""The share of its time in which a running Python collects garbage.

A flag of its interpreter, read at irregular times, says so. Collections that Python begins by
itself have no frame: a stack shows the line at which they happened to begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from profd.daemon.clock import Clock
from profd.daemon.interpreter.frames import Interpreter, open_interpreter
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.store.records import COLLECTING, Identity, Point, PointsTaken, Record

# In struct _gc_runtime_state (internal/pycore_gc.h), from 3.9 to 3.13. Its generations are aligned
# to 8 bytes, or to 4, as in 3.13.5 of Debian 13.
_GENERATIONS, _YOUNGEST, _COLLECTING = (20, 24), 96, 200
READINGS = 8
"""How many make a point."""
READ_S = 0.25  # a look costs 0.2 ms of CPU time, nearly all of it to wake up
_PART = 0.618034
"""Each pause is longer by this part of ``READ_S``, or wraps: so readings meet all of a loop."""
RETRY_S, TRIES = 2.0, 10


class Collector:
    """The garbage collector of an interpreter. Everything raises Unreadable."""

    def __init__(self, python: Interpreter) -> None:
        """Find it; raises Unreadable if it is not as in the known versions."""
        self._memory = python.memory
        if python.offsets.collector is None:
            raise Unreadable(
                f"the collector of Python {python.version[0]}.{python.version[1]} is not known"
            )
        self._state = python.interpreter() + python.offsets.collector
        # It has the address of its own youngest generation: if that fits, the rest is in its place.
        if self._memory.word(self._state + _YOUNGEST) - self._state not in _GENERATIONS:
            raise Unreadable("its collector is not where that of its version is")
        self.close = self._memory.close

    def is_at_work(self) -> bool:
        return any(self._memory.read(self._state + _COLLECTING, 4))


def open_collector(pid: int) -> Collector:
    """Return the collector of a process; raises Unreadable."""
    python = open_interpreter(pid)
    try:
        return Collector(python)
    except Unreadable:
        python.memory.close()
        raise


@dataclass(eq=False)
class GarbageReader:
    """Reads for which share of the time one process collects garbage.

    One thread calls ``poll`` and ``end``.
    """

    identity: Identity
    clock: Clock
    put: Callable[[Record], object]
    attach: Callable[[int], Collector] = open_collector
    _collector: Collector | None = None
    _tries: int = 0
    _at_work: list[bool] = field(default_factory=list)
    _phase: float = 0.0

    def poll(self) -> float:
        """Read once, and return in how many seconds to read again."""
        try:
            if self._collector is None:
                self._collector = self.attach(self.identity.pid)
            self._at_work.append(self._collector.is_at_work())
        except Unreadable:  # it is another program, or none that can be read, or not yet
            self.end()
            self._tries += 1
            return RETRY_S if self._tries < TRIES else 1e6
        if len(self._at_work) >= READINGS:
            share = sum(self._at_work) / len(self._at_work)
            self.put(PointsTaken(self.clock.now_ns(), (Point(COLLECTING, share, self.identity),)))
            self._at_work.clear()
        self._phase = (self._phase + _PART) % 1
        return READ_S * (0.5 + self._phase)

    def end(self) -> None:
        if self._collector is not None:
            self._collector.close()
        self._collector = None
