"""What a series was over a long time: by the minute where there are sums, else and around these by its readings.

Both say the same: the sums are made of the same steps (``store.stepfunction``), cut at the minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow
from profd.daemon.store.stepfunction import Aggregate, Step, StepFunction, added_up
from profd.daemon.store.sums.held import MINUTE_NS
from profd.daemon.store.sums.split import MINUTES
from profd.daemon.store.sums.stored import PointMinuteRow, point_minutes

LEAST_MINUTES = 10
"""Of fewer minutes the readings themselves are read as quickly."""
_NEVER_NS = 1 << 62


class Part(NamedTuple):
    """A function that is complete over [from_ns, to_ns)."""

    function: StepFunction
    from_ns: int
    to_ns: int

    def steps(self) -> Iterator[Step]:
        """Yield what lies in the range."""
        return self.function.clipped(self.from_ns, self.to_ns)

    def readings(self) -> Iterator[PointRow]:
        """Yield the readings that were made in the range."""
        for step in self.function.steps:
            if self.from_ns <= step.end_ns < self.to_ns:
                yield PointRow(step.end_ns, step.value)


class Course(NamedTuple):
    """Readings, then whole minutes, then readings again, in order of time; each part may be empty."""

    head: Part
    minutes: Sequence[PointMinuteRow] = ()
    tail: Part = Part(StepFunction([], None), 0, 0)

    def total(self) -> Aggregate:
        """Return what the series was over all of the range."""
        ends = [part.function.over(part.from_ns, part.to_ns) for part in (self.head, self.tail)]
        return added_up([*ends, *(one.aggregate for one in self.minutes)])

    def steps(self) -> Iterator[Step]:
        """Yield the values that held, one by one or by the minute; of a minute that is known in part, at its end."""
        yield from self.head.steps()
        for one in self.minutes:
            yield Step(one.last_ns - one.known_ns, one.last_ns, one.aggregate.mean or 0.0)
        yield from self.tail.steps()

    def extremes(self, started_ns: int) -> list[PointRow]:
        """Return the readings, and of each minute the least value and the highest one."""
        found = list(self.head.readings())
        for one in self.minutes:
            middle_ns = (started_ns + one.minute * MINUTE_NS + one.last_ns) // 2
            found += [PointRow(middle_ns, one.least), PointRow(one.last_ns, one.most)]
        return [*found, *self.tail.readings()]


def take_course(
    reader: RunReader, series: int, from_ns: int | None, to_ns: int | None, least_minutes: int = LEAST_MINUTES
) -> Course:
    """Return what a series was in [from_ns, to_ns), by whole minutes where these are at least so many."""
    started_ns = reader.info.started_ns
    first = MINUTES.start if from_ns is None else -((started_ns - from_ns) // MINUTE_NS)
    last = MINUTES.stop if to_ns is None else (to_ns - started_ns) // MINUTE_NS
    minutes = point_minutes(reader, series, first, last) if last - first >= least_minutes else []
    if len(minutes) < least_minutes:
        return Course(_part(reader, series, from_ns, to_ns))
    begin_ns, end_ns = (started_ns + at * MINUTE_NS for at in (minutes[0].minute, minutes[-1].minute + 1))
    return Course(_part(reader, series, from_ns, begin_ns), minutes, _part(reader, series, end_ns, to_ns))


def _part(reader: RunReader, series: int, from_ns: int | None, to_ns: int | None) -> Part:
    begin_ns = reader.info.started_ns if from_ns is None else from_ns
    return Part(reader.steps(series, from_ns, to_ns), begin_ns, _NEVER_NS if to_ns is None else to_ns)
