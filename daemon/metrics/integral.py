"""A series added up over time: the counter behind a gauge. Knows nothing of what the numbers mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.rows import PointRow

LONGEST_NS = 10 * SECOND_NS
"""Each value is that of the time since the one before, of no more than this."""
LATELY_NS = 10 * SECOND_NS


class Integral:
    """The sum of a series over time, with its mean over the last seconds."""

    def __init__(self, began_ns: int) -> None:
        """Count from ``began_ns`` on."""
        self.newest_ns = began_ns
        self.total_s = 0.0
        """The values, each times the seconds that it holds."""
        self._lately: deque[tuple[int, int, float]] = deque()

    def add(self, points: Sequence[PointRow]) -> None:
        """Take in points that are younger than ``newest_ns``, in order of time."""
        for point in points:
            held_ns = min(point.at_ns - self.newest_ns, LONGEST_NS)
            self.total_s += point.value * held_ns / SECOND_NS
            self._lately.append((point.at_ns, held_ns, point.value))
            self.newest_ns = point.at_ns

    def mean(self, end_ns: int) -> float | None:
        """Return the mean over the last seconds before ``end_ns``; None where nothing was read in them."""
        while self._lately and self._lately[0][0] <= end_ns - LATELY_NS:
            self._lately.popleft()
        known_ns = sum(held_ns for _, held_ns, _ in self._lately)
        return sum(held_ns * value for _, held_ns, value in self._lately) / known_ns if known_ns else None
