"""A series added up over time: the counter behind a gauge. Knows nothing of what the numbers mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.rows import PointRow
from profd.daemon.store.stepfunction import Step, StepBuilder, StepFunction

LATELY_NS = 10 * SECOND_NS


class Integral:
    """The sum of a series over time, with its mean over the last seconds."""

    def __init__(self, began_ns: int) -> None:
        """Count from ``began_ns`` on."""
        self.newest_ns = began_ns - 1
        self.total_s = 0.0
        """The values, each times the seconds for which it holds."""
        self._began_ns = began_ns
        self._builder = StepBuilder()
        self._lately: deque[Step] = deque()

    def add(self, points: Sequence[PointRow]) -> None:
        """Take in points that are younger than ``newest_ns``, in order of time."""
        for point in points:
            self.newest_ns = point.at_ns
            for step in self._builder.add(point.at_ns, point.value):
                held_ns = step.end_ns - max(step.start_ns, self._began_ns)
                self.total_s += step.value * held_ns / SECOND_NS
                self._lately.append(step)

    def mean(self, end_ns: int) -> float | None:
        """Return the mean over the last seconds before ``end_ns``; None where nothing is known of them."""
        from_ns = end_ns - LATELY_NS
        while self._lately and self._lately[0].end_ns <= from_ns:
            self._lately.popleft()
        return StepFunction(list(self._lately), None).over(from_ns, end_ns).mean
