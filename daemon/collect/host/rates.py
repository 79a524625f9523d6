"""How fast totals grow: what a counter rose by between two readings of it, a second."""

from __future__ import annotations

from collections.abc import Hashable

from profd.daemon.clock import SECOND_NS, Clock


class Rates:
    """Keeps the last reading of totals, by a key that tells them apart."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[Hashable, tuple[int, float]] = {}
        self._now: dict[Hashable, tuple[int, float]] = {}

    def turn(self) -> None:
        """Begin a reading. Whatever the last one did not hold is forgotten: a long run sees many processes go."""
        self._before, self._now = self._now, {}

    def per_s(self, key: Hashable, total: float) -> float | None:
        """Return by how much a total grew a second since the last reading; None at the first. Never below 0."""
        now_ns = self._clock.now_ns()
        before = self._before.get(key)
        self._now[key] = (now_ns, total)
        if before is None or now_ns <= before[0]:
            return None
        return max(total - before[1], 0.0) * SECOND_NS / (now_ns - before[0])

    def grown(self, key: Hashable, total: float) -> float | None:
        """Return by how much a total grew since the last reading; None at the first. Never below 0."""
        before = self._before.get(key)
        self._now[key] = (self._clock.now_ns(), total)
        return None if before is None else max(total - before[1], 0.0)
