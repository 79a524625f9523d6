"""The share of its time in which a running Python collects garbage.

A flag of its interpreter, read at irregular times, says so. Collections that Python begins by
itself have no frame: a stack shows the line at which they happened to begin.
"""

from __future__ import annotations

from collections.abc import Sequence

from profd.daemon.interpreter.frames import Interpreter
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.store.records import COLLECTING, Identity, Point

# In struct _gc_runtime_state (internal/pycore_gc.h), from 3.9 to 3.13. Its generations are aligned
# to 8 bytes, or to 4, as in 3.13.5 of Debian 13.
_GENERATIONS, _YOUNGEST, _COLLECTING = (20, 24), 96, 200


class Collector:
    """The garbage collector of an interpreter. Everything raises Unreadable."""

    read_s = 0.25  # a look costs 0.2 ms of CPU time, nearly all of it to wake up

    def __init__(self, python: Interpreter, identity: Identity) -> None:
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
        self._identity = identity

    def look(self) -> bool:
        return any(self._memory.read(self._state + _COLLECTING, 4))

    def points(self, looks: Sequence[bool], _: float) -> tuple[Point, ...]:
        return (Point(COLLECTING, sum(looks) / len(looks), self._identity),)
