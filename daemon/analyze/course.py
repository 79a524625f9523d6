"""How a series went over a long time: by the minute where there are sums, with the readings before and after these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow
from profd.daemon.store.sums.held import MINUTE_NS
from profd.daemon.store.sums.stored import MINUTES, PointMinuteRow, point_minutes

LEAST_MINUTES = 10
"""Of fewer minutes the readings themselves are read as quickly."""


class Course(NamedTuple):
    """Readings, then whole minutes, then readings again, in order of time; each part may be empty."""

    head: Sequence[PointRow]
    minutes: Sequence[PointMinuteRow]
    tail: Sequence[PointRow]

    @property
    def most(self) -> float | None:
        """The highest value."""
        values = [*(point.value for point in (*self.head, *self.tail)), *(one.most for one in self.minutes)]
        return max(values, default=None)

    def spans(self, since_ns: int | None = None) -> Iterator[tuple[float, int]]:
        """Yield the mean of each part and of how many ns it tells: a reading of the time since the one before.

        The first reading tells of the time from ``since_ns`` on, of nothing where that is None.
        """
        for point in self.head:
            yield point.value, 0 if since_ns is None else max(point.at_ns - since_ns, 1)
            since_ns = point.at_ns
        for one in self.minutes:
            yield one.mean, one.known_ns
            since_ns = one.last_ns
        for point in self.tail:
            yield point.value, 0 if since_ns is None else max(point.at_ns - since_ns, 1)
            since_ns = point.at_ns

    def mean(self, since_ns: int | None = None) -> float | None:
        """Return the mean over the time that is known; None without any reading."""
        spans = list(self.spans(since_ns))
        known_ns = sum(told_ns for _, told_ns in spans)
        if not known_ns:
            return spans[0][0] if spans else None
        return sum(value * told_ns for value, told_ns in spans) / known_ns

    def means(self) -> list[PointRow]:
        """Return the readings, and of each minute the mean at the time of its last one."""
        return [*self.head, *(PointRow(one.last_ns, one.mean) for one in self.minutes), *self.tail]

    def extremes(self, started_ns: int) -> list[PointRow]:
        """Return the readings, and of each minute the least value and the highest one."""
        found = list(self.head)
        for one in self.minutes:
            middle_ns = (started_ns + one.minute * MINUTE_NS + one.last_ns) // 2
            found += [PointRow(middle_ns, one.least), PointRow(one.last_ns, one.most)]
        return [*found, *self.tail]


def take_course(
    reader: RunReader, series: int, from_ns: int | None, to_ns: int | None, least_minutes: int = LEAST_MINUTES
) -> Course:
    """Return how a series went in [from_ns, to_ns), by whole minutes where these are at least so many."""
    started_ns = reader.info.started_ns
    first = MINUTES.start if from_ns is None else -((started_ns - from_ns) // MINUTE_NS)
    last = MINUTES.stop if to_ns is None else (to_ns - started_ns) // MINUTE_NS
    minutes = point_minutes(reader, series, first, last) if last - first >= least_minutes else []
    if len(minutes) < least_minutes:
        return Course(reader.points(series, from_ns, to_ns), [], [])
    begin_ns, end_ns = (started_ns + at * MINUTE_NS for at in (minutes[0].minute, minutes[-1].minute + 1))
    return Course(reader.points(series, from_ns, begin_ns), minutes, reader.points(series, end_ns, to_ns))
