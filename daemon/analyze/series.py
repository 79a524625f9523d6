"""Series over a long time, by rollups of a minute; cores of the machine and of main threads."""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import MINUTE_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import PointMinuteRow, minutes_total, point_minutes
from profd.daemon.store.rows import PointRow, ThreadRow
from profd.daemon.store.stepfunction import (
    THREAD_CPU,
    Aggregate,
    Step,
    StepFunction,
    sum_aggregates,
)
from profd.daemon.timerange import EVER, TimeRange

LEAST_MINUTES = 10  # of fewer minutes the readings themselves are read as quickly


class CoursePart(NamedTuple):
    """A function that is complete over a range of time."""

    function: StepFunction
    time: TimeRange

    def steps(self) -> Iterator[Step]:
        return self.function.clipped(self.time)

    def readings(self) -> Iterator[PointRow]:
        from_ns, to_ns = self.time  # instead of holds, because a long run has many readings
        steps = (step for step in self.function.steps if from_ns <= step.end_ns < to_ns)
        return (PointRow(step.end_ns, step.value) for step in steps)

    def total(self) -> Aggregate:
        return self.function.over(self.time)


NOTHING = CoursePart(StepFunction([], None), TimeRange(0, 0))


class SeriesCourse(NamedTuple):
    """Readings, whole minutes, and readings again, in order of time; each part may be empty."""

    head: CoursePart
    minutes: Sequence[PointMinuteRow] = ()
    tail: CoursePart = NOTHING

    def steps(self) -> Iterator[Step]:
        """Yield the values that held, one by one or by the minute.

        A minute that is known in part counts at its end.
        """
        yield from self.head.steps()
        for one in self.minutes:
            yield Step(one.last_ns - one.known_ns, one.last_ns, one.aggregate.mean or 0.0)
        yield from self.tail.steps()

    def extremes(self, started_ns: int) -> list[PointRow]:
        found = list(self.head.readings())
        for one in self.minutes:
            middle_ns = (started_ns + one.minute * MINUTE_NS + one.last_ns) // 2
            found += [PointRow(middle_ns, one.least), PointRow(one.last_ns, one.most)]
        return [*found, *self.tail.readings()]


def take_course(
    reader: RunReader,
    series: int,
    time: TimeRange = EVER,
    least_minutes: int = LEAST_MINUTES,
) -> SeriesCourse:
    """Return what a series was in a range of time, by the minute from ``least_minutes`` on."""
    asked = _minutes_in(reader, time)
    minutes = point_minutes(reader, series, asked) if len(asked) >= least_minutes else []
    if len(minutes) < least_minutes:
        return SeriesCourse(_part(reader, series, time))
    head, tail = _around(reader, time, minutes[0].minute, minutes[-1].minute)
    return SeriesCourse(_part(reader, series, head), minutes, _part(reader, series, tail))


def total_of(reader: RunReader, series: int, time: TimeRange = EVER) -> Aggregate:
    """Return what a series was over a range of time, as ``take_course`` has it."""
    asked = _minutes_in(reader, time)
    found = minutes_total(reader, series, asked) if len(asked) >= LEAST_MINUTES else []
    for first, last, *whole in found:
        parts = (_part(reader, series, part) for part in _around(reader, time, first, last))
        return sum_aggregates([Aggregate._make(whole), *(part.total() for part in parts)])
    return _part(reader, series, time).total()


def _minutes_in(reader: RunReader, time: TimeRange) -> range:
    """Return the minutes of the run that lie in a range of time as a whole."""
    started_ns = reader.info.started_ns
    return range(
        -((started_ns - time.from_ns) // MINUTE_NS), (time.to_ns - started_ns) // MINUTE_NS
    )


def _around(
    reader: RunReader, time: TimeRange, first: int, last: int
) -> tuple[TimeRange, TimeRange]:
    """Return what a range of time has before the first and after the last of its minutes."""
    begin_ns, end_ns = (reader.info.started_ns + at * MINUTE_NS for at in (first, last + 1))
    return TimeRange(time.from_ns, begin_ns), TimeRange(end_ns, time.to_ns)


def _part(reader: RunReader, series: int, time: TimeRange) -> CoursePart:
    if not time.length_ns:
        return NOTHING
    return CoursePart(reader.steps(series, time), time.within(TimeRange(reader.info.started_ns)))


PRESSURE, CORE_WAIT = "host_cpu_pressure_share", "main_thread_core_wait_share"
"""The shares of time in which any thread, and a main thread, waited for a core.

Not every kernel counts that of a main thread.
"""


def machine_cores(reader: RunReader) -> int:
    """Return how many cores the machine has; 0 if they were not read."""
    named = {row.device for row in reader.list_series("host_core_cpu_share") if row.device}
    return sum(bool(re.fullmatch(r"cpu\d+", name)) for name in named)


def points_of(
    reader: RunReader,
    name: str,
    process: int | None,
    selection: Selection,
    device: str | None = None,
) -> list[PointRow]:
    """Return the points of a series in a selection's range of time, none without the series."""
    series = reader.find_series(name, process, device)
    return reader.points(series.id, selection.time) if series else []


def first_and_last(
    reader: RunReader, series: int, time: TimeRange
) -> tuple[PointRow, PointRow] | None:
    """Return the first and the last point of a series in a range of time; None without any."""
    first = reader.points_around(series, time.from_ns - 1)[1]
    last = reader.last_point(series, time.to_ns - 1)
    return (first, last) if first and last and first.at_ns <= last.at_ns else None


def total_of_series(
    reader: RunReader,
    name: str,
    process: int | None,
    selection: Selection,
    device: str | None = None,
) -> Aggregate:
    """Return what a series was over a selection's range of time."""
    series = reader.find_series(name, process, device)
    return total_of(reader, series.id, selection.time) if series else Aggregate()


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def main_thread_cores(reader: RunReader, process: int, time: TimeRange) -> float | None:
    """Return the CPU time per second of the leading thread of a process; None if not read.

    Of several that led in turn it is the sum: each waits while another one leads.
    """
    led = [row for row in reader.threads.values() if row.process == process and row.is_main]
    if len(led) > 1:
        sampled = reader.sampled_threads(time)
        led = [row for row in led if row.id in sampled]
    courses = of_threads(reader, led, THREAD_CPU).values()
    means = (total_of(reader, one, time).mean for one in courses)
    known = [mean for mean in means if mean is not None]
    return sum(known) if known else None


def of_threads(reader: RunReader, threads: Collection[ThreadRow], name: str) -> dict[int, int]:
    """Return by thread the id of its series of a name, if that was read."""
    known = reader.list_series(name, processes={row.process for row in threads})
    of_thread = {(row.process, row.os_tid): row.id for row in known}
    return {
        row.id: of_thread[key] for row in threads if (key := (row.process, row.os_tid)) in of_thread
    }
