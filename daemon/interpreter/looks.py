"""Look again and again, at irregular times, at a part of a running Python.

Some looks together make points of series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.interpreter.frames import Interpreter, open_interpreter
from profd.daemon.interpreter.garbage import Collector
from profd.daemon.interpreter.lock import Lock
from profd.daemon.interpreter.memory import Memory, Unreadable
from profd.daemon.store.records import Identity, PointsTaken, Put

READINGS = 10
"""How many looks make points."""
RETRY_S, TRIES = 2.0, 10


@dataclass(eq=False)
class LookReader:
    """Looks at a part of one process's interpreter.

    ``find`` returns that part, or raises Unreadable; its ``read_s`` is the mean pause between two
    looks. One thread calls ``poll`` and ``end``.
    """

    identity: Identity
    clock: Clock
    put: Put
    find: Callable[[Interpreter, Identity], Collector | Lock]
    attach: Callable[[int], Interpreter] = open_interpreter
    _memory: Memory | None = None
    _part: Collector | Lock | None = None
    _looks: list[Any] = field(default_factory=list)
    _since_ns: int = 0
    _tries: int = 0
    _phase: float = 0.0

    def poll(self) -> float:
        """Look once, and return in how many seconds to look again."""
        now_ns = self.clock.now_ns()
        try:
            if self._part is None:
                python = self.attach(self.identity.pid)
                self._memory, self._since_ns = python.memory, now_ns
                self._part = self.find(python, self.identity)
            self._looks.append(self._part.look())
        except Unreadable:  # it is another program, or none that can be read, or not yet
            self.end()
            self._tries += 1
            return RETRY_S if self._tries < TRIES else 1e6
        if len(self._looks) >= READINGS:
            points = self._part.points(self._looks, (now_ns - self._since_ns) / SECOND_NS)
            self.put(PointsTaken(now_ns, points))
            self._looks, self._since_ns = [], now_ns
        # Each pause is longer by this part of the usual one, or wraps: so looks meet all of a loop.
        self._phase = (self._phase + 0.618034) % 1
        return self._part.read_s * (0.5 + self._phase)

    def end(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = self._part = None
