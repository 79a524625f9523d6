"""Ranges of time, and how long a reading holds: what a series was over a range.

Docs/architecture.md says why. All code that needs an answer asks here, while a run is written and
afterwards: both have to agree to the nanosecond.

1. A reading holds for the time since the one before it: a rate is stored as the mean of that time.
2. After a pause of more than three usual distances it holds for the last three of them, and the
   time before is unknown. The usual distance is the median of the last nine, so that a part of a
   series gives the same as all of it.
3. The first reading holds for as long as the second one does; otherwise a worker that lives for
   ten seconds would lack a tenth.
4. After the last reading nothing is known. A single reading is known at its own moment and holds
   for no time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store.rows import PointRow
from profd.daemon.timerange import TimeRange

LONGEST_DISTANCES = 3  # a reading holds for at most this many usual distances
DISTANCES = 9  # the usual distance is the median of the last readings, this many


class IntervalSet:
    """A union of ranges of time, (start_ns, end_ns): what recordings cover, or when something held.

    Those added to it have to begin no earlier than those before.
    """

    __slots__ = ("_before", "_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Unite ranges, in any order."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._before: list[int] = []
        for time in sorted(ranges):
            self.add(*time)

    def add(self, start_ns: int, end_ns: int) -> None:
        """Cover [start_ns, end_ns) too; time that is already covered counts once."""
        if self._ends and start_ns <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], end_ns)
        elif end_ns > start_ns:
            self._before.append(self.length_ns)
            self._starts.append(start_ns)
            self._ends.append(end_ns)

    @property
    def length_ns(self) -> int:
        return self._before[-1] + self._ends[-1] - self._starts[-1] if self._ends else 0

    @property
    def start_ns(self) -> int | None:
        return self._starts[0] if self._starts else None

    @property
    def end_ns(self) -> int | None:
        return self._ends[-1] if self._ends else None

    def until(self, at_ns: int) -> int:
        """Return how much is covered before a time."""
        index = bisect_right(self._starts, at_ns) - 1
        if index < 0:
            return 0
        return self._before[index] + min(at_ns, self._ends[index]) - self._starts[index]

    def between(self, from_ns: int, to_ns: int) -> int:
        """Return how much of [from_ns, to_ns) is covered."""
        return max(self.until(to_ns) - self.until(from_ns), 0)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges, (start_ns, end_ns), in order; they neither touch nor overlap."""
        return zip(self._starts, self._ends, strict=True)

    def ranges_between(self, from_ns: int, to_ns: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of the ranges that lie in [from_ns, to_ns).

        They are pairs, because this runs for each recording that is written.
        """
        for index in range(max(bisect_right(self._starts, from_ns) - 1, 0), len(self._starts)):
            if self._starts[index] >= to_ns:
                return
            start_ns, end_ns = max(self._starts[index], from_ns), min(self._ends[index], to_ns)
            if start_ns < end_ns:
                yield start_ns, end_ns

    def edges(self) -> list[tuple[int, int]]:
        """Return the times at which a range begins or ends.

        Each comes with how much is covered before it.
        """
        ranges = zip(self._starts, self._ends, self._before, strict=True)
        return [
            edge
            for start, end, before in ranges
            for edge in ((start, before), (end, before + end - start))
        ]


def common(one: IntervalSet, other: IntervalSet) -> IntervalSet:
    """Return the time that lies in both."""
    return IntervalSet(part for time in one.ranges() for part in other.ranges_between(*time))


class IntervalCursor:
    """Says how much of successive ranges of time is covered.

    Each requested range starts no earlier than the one before.
    """

    __slots__ = ("_at", "_cover", "_ends", "_starts")

    def __init__(self, cover: IntervalSet) -> None:
        self._cover, self._starts, self._ends, self._at = cover, cover._starts, cover._ends, 0

    def between(self, from_ns: int, to_ns: int) -> int:
        """Return how much of [from_ns, to_ns) is covered."""
        ends, at = self._ends, self._at
        count = len(ends)
        while at < count and ends[at] <= from_ns:
            at += 1
        self._at = at
        if at == count or self._starts[at] >= to_ns:
            return 0
        if self._starts[at] <= from_ns and to_ns <= ends[at]:
            return to_ns - from_ns
        return self._cover.between(from_ns, to_ns)


class Step(msgspec.Struct, frozen=True):
    """A value that held over [start_ns, end_ns); it was read at ``end_ns``."""

    start_ns: int
    end_ns: int
    value: float


class StepBuilder:
    """Turns the readings of one series into steps as they come, in order of time."""

    __slots__ = ("_distances_ns", "_first", "last_ns")

    def __init__(self) -> None:
        self._first: PointRow | None = None
        self.last_ns: int | None = None
        self._distances_ns: list[int] = []  # a list, because a deque takes 0.7 kB per series

    def add(self, at_ns: int, value: float) -> Sequence[Step]:
        """Take in a reading, and return the steps that it determines.

        The second reading determines two steps. The first one, or one older than the last,
        determines none.
        """
        if self.last_ns is None:
            self._first, self.last_ns = PointRow(at_ns, value), at_ns
            return ()
        distance_ns = at_ns - self.last_ns
        if distance_ns <= 0:
            return ()
        distances_ns = self._distances_ns
        distances_ns.append(distance_ns)
        if len(distances_ns) > DISTANCES:
            del distances_ns[0]
        if distance_ns > LONGEST_DISTANCES * min(
            distances_ns
        ):  # else it is not longer than so many medians either
            distance_ns = min(distance_ns, int(LONGEST_DISTANCES * _median(distances_ns)))
        self.last_ns = at_ns
        step = Step(at_ns - distance_ns, at_ns, value)
        if self._first is None:
            return (step,)
        first, self._first = self._first, None
        return Step(first.at_ns - distance_ns, first.at_ns, first.value), step

    def close(self) -> Sequence[Step]:
        """Return the last steps if no more readings come: the moment of a single reading."""
        first, self._first = self._first, None
        return (Step(first.at_ns, first.at_ns, first.value),) if first else ()


class Aggregate(NamedTuple):
    """What a series was over a range of time.

    ``known_ns`` says for how much of the range the value is known. ``integral`` adds up the values,
    each times the nanoseconds for which it held. ``least`` and ``most`` are infinite if nothing is
    known.
    """

    known_ns: int = 0
    integral: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")

    @property
    def is_known(self) -> bool:
        """Whether there is any reading, even of a single moment."""
        return self.most >= self.least

    @property
    def mean(self) -> float | None:
        """The mean over the time that is known; for a single moment, its value.

        None if there is no reading.
        """
        if self.known_ns:
            return self.integral / self.known_ns
        return self.most if self.is_known else None


def sum_aggregates(aggregates: Iterable[Aggregate]) -> Aggregate:
    """Return what a series was over several ranges together, which do not overlap."""
    every = list(aggregates)
    return Aggregate(
        sum(one.known_ns for one in every),
        sum(one.integral for one in every),
        min((one.least for one in every), default=float("inf")),
        max((one.most for one in every), default=float("-inf")),
    )


class StepFunction:
    """A piecewise constant function of time, unknown while nothing was read.

    ``period_ns`` is the usual distance of two readings: shorter changes do not show. It is None if
    there are fewer than two readings.
    """

    def __init__(self, steps: Sequence[Step], period_ns: int | None) -> None:
        """Take steps in order of time that do not overlap."""
        self.steps, self.period_ns = steps, period_ns
        self._starts = [step.start_ns for step in steps]

    def mean(self, from_ns: int, to_ns: int) -> tuple[float, int]:
        """Return the mean over [from_ns, to_ns) and how many ns of it are known.

        Return (0.0, 0) if nothing is known.
        """
        whole, known_ns = 0.0, 0
        for step in self._between(from_ns, to_ns):
            start_ns = (
                step.start_ns if step.start_ns > from_ns else from_ns
            )  # instead of max, because this runs for each interval of a run
            end_ns = step.end_ns if step.end_ns < to_ns else to_ns
            if end_ns > start_ns:
                whole += step.value * (end_ns - start_ns)
                known_ns += end_ns - start_ns
        return (whole / known_ns if known_ns else 0.0), known_ns

    def over(self, time: TimeRange) -> Aggregate:
        inside = ((step.end_ns - step.start_ns, step.value) for step in self.clipped(time))
        return sum_aggregates(
            Aggregate(length_ns, value * length_ns, value, value) for length_ns, value in inside
        )

    def clipped(self, time: TimeRange) -> Iterator[Step]:
        """Yield the parts of the steps that lie in a range of time.

        Steps of a single moment in the range are included.
        """
        from_ns, to_ns = time
        for step in self._between(from_ns, to_ns):
            if from_ns <= step.start_ns and step.end_ns <= to_ns:
                yield step
            elif from_ns < step.end_ns:
                yield Step(max(step.start_ns, from_ns), min(step.end_ns, to_ns), step.value)

    def where(self, holds: Callable[[float], bool]) -> IntervalSet:
        """Return the time over which the value is known and fulfills a condition."""
        held = (step for step in self.steps if holds(step.value))
        return IntervalSet((step.start_ns, step.end_ns) for step in held)

    def _between(self, from_ns: int, to_ns: int) -> Sequence[Step]:
        """Return the steps that may overlap [from_ns, to_ns)."""
        return self.steps[
            max(bisect_right(self._starts, from_ns) - 1, 0) : bisect_left(self._starts, to_ns)
        ]


def step_function(points: Iterable[PointRow]) -> StepFunction:
    """Return the readings of a series, in order of time, as a function of time."""
    builder = StepBuilder()
    steps: list[Step] = []
    for point in points:
        steps += builder.add(point.at_ns, point.value)
    steps += builder.close()
    distances_ns = [after.end_ns - before.end_ns for before, after in pairwise(steps)]
    return StepFunction(steps, int(_median(distances_ns)) if distances_ns else None)


def _median(values: Iterable[int]) -> float:
    from statistics import median  # slow to import, and hardly ever needed in a session

    return median(values)


def mean_function(functions: Sequence[StepFunction]) -> StepFunction:
    """Return the mean of several functions wherever at least one is known."""
    if len(functions) <= 1:
        return functions[0] if functions else StepFunction([], None)
    edges = sorted(
        {edge for one in functions for step in one.steps for edge in (step.start_ns, step.end_ns)}
    )
    steps = []
    for start_ns, end_ns in pairwise(edges):
        known = [
            mean for mean, known_ns in (one.mean(start_ns, end_ns) for one in functions) if known_ns
        ]
        if known:
            steps.append(Step(start_ns, end_ns, sum(known) / len(known)))
    return StepFunction(
        steps, max((one.period_ns for one in functions if one.period_ns is not None), default=None)
    )


UTILIZATION = "gpu_utilization_share"
MEMORY_OF_PROCESS = "gpu_process_memory_bytes"
THREAD_CPU = "cpu_cores"
READINGS = """
    SELECT at_ns, value FROM point WHERE series = :series
    AND at_ns >= coalesce((SELECT min(at_ns) FROM (
        SELECT at_ns FROM point WHERE series = :series AND at_ns <= :from
        ORDER BY at_ns DESC LIMIT 10)), :from)
    AND at_ns <= coalesce((
        SELECT at_ns FROM point WHERE series = :series AND at_ns >= :to
        ORDER BY at_ns LIMIT 1 OFFSET 1),
        9223372036854775807)
    ORDER BY at_ns
"""
"""Selects the readings that determine the values in a range.

These include readings before the range, for the usual distance, and two after it.
"""


def idle_time(utilization: StepFunction, limit: float = RECORDING.idle_below) -> IntervalSet:
    """Return when a GPU was utilized below a limit."""
    return utilization.where(lambda value: value < limit or value == 0.0)


def on_cpu_time(cores: StepFunction) -> IntervalSet:
    """Return when a thread ran more than it waited: it used at least half a core."""
    return cores.where(lambda value: value >= 0.5)


def devices_used(
    process: int,
    parents: Mapping[int, int | None],
    held: Mapping[int, Collection[str]],
    devices: frozenset[str],
) -> frozenset[str]:
    """Return the devices on which a process, or its parent processes, have memory.

    If there are none, return all devices. ``held`` are the devices on which each process has
    memory: a worker loads data for its parent's GPU.
    """
    seen: set[int] = set()
    at: int | None = process
    while at is not None and at in parents and at not in seen:
        own = devices.intersection(held.get(at, ()))
        if own:
            return own
        seen.add(at)
        at = parents[at]
    return devices


def samples_inside(samples: int, duration_ns: int, inside_ns: int) -> int:
    """Return how many samples of an interval belong to ``inside_ns`` of it.

    They are whole samples, so that all sums agree.
    """
    return (2 * samples * inside_ns + duration_ns) // (2 * max(duration_ns, 1))
