"""A series as a function of time: what a reading says, and of when. Knows nothing of what the numbers mean."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from profd.daemon.store.rows import PointRow
from profd.daemon.store.sums.cover import Cover

LONGEST_PERIODS = 3
"""A reading tells of the time since the one before; after so many usual periods without one, of no more than that."""

USUAL_OF = 9
"""So many distances between readings tell which distance is usual."""


class Step(msgspec.Struct, frozen=True):
    """A value that held over [start_ns, end_ns)."""

    start_ns: int
    end_ns: int
    value: float


class StepFunction:
    """A piecewise constant function of time, unknown where there were no readings.

    ``period_ns`` is the usual distance of two readings: nothing shorter can be told from it. None where there are
    fewer than two.
    """

    def __init__(self, steps: Sequence[Step], period_ns: int | None) -> None:
        """Take steps in order of time that do not overlap."""
        self.steps = steps
        self.period_ns = period_ns
        self._starts = [step.start_ns for step in steps]

    def mean(self, from_ns: int, to_ns: int) -> tuple[float, int]:
        """Return the mean over [from_ns, to_ns) and how many ns of it are known; (0.0, 0) where nothing is."""
        whole, known_ns = 0.0, 0
        for index in range(max(bisect_right(self._starts, from_ns) - 1, 0), bisect_left(self._starts, to_ns)):
            step = self.steps[index]
            overlap_ns = max(min(step.end_ns, to_ns) - max(step.start_ns, from_ns), 0)
            whole += step.value * overlap_ns
            known_ns += overlap_ns
        return (whole / known_ns if known_ns else 0.0), known_ns

    def where(self, holds: Callable[[float], bool]) -> Cover:
        """Return the time over which the value is known and is one of those asked for."""
        cover = Cover()
        for step in self.steps:
            if holds(step.value):
                cover.add(step.start_ns, step.end_ns)
        return cover


def step_function(points: Sequence[PointRow]) -> StepFunction:
    """Return the track of readings of which each tells of the time since the one before."""
    distances = [after.at_ns - before.at_ns for before, after in pairwise(points)]
    if not distances:
        return StepFunction([], None)
    return StepFunction(list(_steps(points)), int(statistics.median(distances)))


def _steps(points: Sequence[PointRow]) -> Iterator[Step]:
    """Yield what each reading says of the time since the one before.

    What is usual is told by the readings just before, so that a part of a series says of its time what all of it does.
    """
    lately: deque[int] = deque(maxlen=USUAL_OF)
    for before, after in pairwise(points):
        distance_ns = after.at_ns - before.at_ns
        if distance_ns <= 0:
            continue
        lately.append(distance_ns)
        if distance_ns > LONGEST_PERIODS * min(lately):  # else it is not longer than so many medians either
            distance_ns = min(distance_ns, int(LONGEST_PERIODS * statistics.median(lately)))
        yield Step(after.at_ns - distance_ns, after.at_ns, after.value)


def mean_function(tracks: Sequence[StepFunction]) -> StepFunction:
    """Return the mean of several tracks wherever at least one is known."""
    if len(tracks) <= 1:
        return tracks[0] if tracks else StepFunction([], None)
    edges = sorted({edge for track in tracks for step in track.steps for edge in (step.start_ns, step.end_ns)})
    steps = []
    for start_ns, end_ns in pairwise(edges):
        known = [mean for mean, known_ns in (track.mean(start_ns, end_ns) for track in tracks) if known_ns]
        if known:
            steps.append(Step(start_ns, end_ns, statistics.fmean(known)))
    return StepFunction(steps, max((track.period_ns for track in tracks if track.period_ns is not None), default=None))
