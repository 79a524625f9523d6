"""A clock that a program wears to time its own phases: which of them is on, and when that changes.

Knows no program.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

# Of the phases that are on at one time the first counts: an import is one, whatever it runs. The
# last two are what is left before and in training.
ORDER = (
    "startup, import",
    "data wait",
    "data load in process",
    "compile",
    "checkpoint",
    "evaluation",
    "synchronize",
    "logging",
    "backward",
    "host-to-device copy",
    "loss",
    "forward",
    "optimizer",
    "startup, import",
    "other",
)
_FIRST_OF_TRAINING = {"data wait", "data load in process", "forward", "evaluation"}


class PhaseClock:
    """Knows which phases are on, and notes each change of the one that counts."""

    def __init__(
        self,
        started_ns: int,
        now_ns: Callable[[], int] = time.time_ns,
        *,
        own: Collection[str] = (),
    ) -> None:
        """Begin in startup; ``own`` are names of the program's own beside the phases.

        The first one ends startup.
        """
        self._own = frozenset(own) - set(ORDER)
        self._order = (*sorted(self._own), *ORDER)
        self._startup, self._other = len(self._order) - 2, len(self._order) - 1
        self._on = [0] * len(self._order)
        self._on[self._startup] = self._on[self._other] = 1
        self._current = self._startup
        self._changes = [(started_ns, self._startup)]
        self._now_ns = now_ns

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Be in a phase for a while; the first one that training has ends the startup."""
        if name in _FIRST_OF_TRAINING or name in self._own:
            self._on[self._startup] = 0
        # The list of now, as ``apart`` puts another in its place.
        on, number = self._on, self._order.index(name)
        on[number] += 1
        self._note()
        try:
            yield
        finally:
            on[number] -= 1
            self._note()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Forget for a while which phases are on."""
        kept, self._on = self._on, [0] * len(self._order)
        self._on[self._other] = 1
        self._note()
        try:
            yield
        finally:
            self._on = kept
            self._note()

    def wrap(
        self, owner: object, name: str, within: str | Callable[..., AbstractContextManager[None]]
    ) -> None:
        """Put a function of ``owner`` into a phase, or into what ``within`` makes of the function's
        arguments.
        """
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def timed(*words: object, **options: object) -> object:
            with self.phase(within) if isinstance(within, str) else within(*words):
                return inner(*words, **options)

        setattr(owner, name, timed)

    def pair(self, phase: str) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return two hooks: one to be called when a phase begins, one for when it ends."""
        running: list[AbstractContextManager[None]] = []

        def begin(*_: object) -> None:
            running.append(self.phase(phase))
            running[-1].__enter__()

        def end(*_: object) -> None:
            running.pop().__exit__(None, None, None)

        return begin, end

    def _note(self) -> None:
        current = next(number for number, count in enumerate(self._on) if count)
        if current != self._current:
            self._current = current
            self._changes.append((self._now_ns(), current))

    def diary(self) -> str:
        """Return all changes until now, a line each; the last line is the end."""
        ended = (*self._changes, (self._now_ns(), self._current))
        return "".join(f"{at_ns} {self._order[number]}\n" for at_ns, number in ended)
