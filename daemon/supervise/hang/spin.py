"""Tells a run that computes and gets nowhere: no step, and every sample of those who train shows one stack, for long.

A wait that spins looks like a computation, and one very long call like both. So it takes much longer until this is
called a hang, and it is told only where steps are counted, and where no more than one core a process is at work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.store.records import Identity, RecordingTaken
from profd.daemon.supervise.hang.look import Look
from profd.daemon.supervise.hang.standstill import Standstill
from profd.daemon.supervise.hang.stillness import Stillness

# Of each that spins: what its other threads take with it. Who computes on many cores computes.
_CORES = 1.15
_EARLY_S = 0.5


class SpinWatch:
    """Looks twice at a run that stands at work; ``look`` is asked for one at those who train, or at all."""

    def __init__(self, clock: Clock, stillness: Stillness, look: Callable[[bool], Awaitable[Look | None]]) -> None:
        self._clock = clock
        self._stillness = stillness
        self._look = look
        self._standstill = Standstill()
        self._first: Look | None = None

    def take(self, recording: RecordingTaken) -> None:
        """Take in a recording of a process."""
        self._standstill.take(recording)

    def keep(self, training: Collection[Identity]) -> None:
        """Take in who trains now; all others are forgotten."""
        self._standstill.keep(training)

    def stood_s(self) -> float:
        """Return for how long all who train have stood where they are without a step; 0 where nobody can tell."""
        since_ns, step_ns = self._standstill.since_ns(self._clock.now_ns()), self._stillness.step_ns
        if since_ns is None or step_ns is None or self._stillness.gpu_moves_since(since_ns):
            return 0.0
        return (self._clock.now_ns() - max(since_ns, step_ns)) / SECOND_NS

    async def check(self, due_s: float) -> Look | None:
        """Return what was seen where the run has spun for ``due_s``; looks for the first time at half of that."""
        stood_s = self.stood_s()
        if stood_s < due_s / 2:
            self._first = None
        elif self._first is None:
            self._first = await self._look(True)
        elif stood_s >= due_s and self._first.at_ns <= self._clock.now_ns() - (due_s / 2 - _EARLY_S) * SECOND_NS:
            first, self._first = self._first, await self._look(False)
            return self._first if self._first is not None and has_spun(first, self._first) else None
        return None

    def has_moved_since(self, at_ns: int) -> bool:
        """Say whether someone who trains stands elsewhere since a time."""
        since_ns = self._standstill.since_ns(self._clock.now_ns())
        return since_ns is not None and since_ns > at_ns


def has_spun(first: Look, second: Look) -> bool:
    """Say whether between two looks those who train did nothing but use one core each, one of them at least."""
    seconds = (second.at_ns - first.at_ns) / SECOND_NS
    spinning = sum(row.wait.kind == "running" for row in second.mains())
    spent_s = second.counters.cpu_s - first.counters.cpu_s
    return (
        spinning > 0
        and spent_s <= _CORES * spinning * seconds
        and not second.counters.has_read_or_written_since(first.counters, seconds)
    )
