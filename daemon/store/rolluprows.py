"""The sums of a run file as they are read: what was seen of threads and series, by whole minutes since the run's start.

Knows the tables. Which of them a range of time is read from is the business of ``split``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from profd.daemon.store.rows import ColumnTime, Count, StackTotal, Time, Value
from profd.daemon.store.runfile import columns_of
from profd.daemon.store.stepfunction import HOUR_MINUTES, Aggregate, added_up

if TYPE_CHECKING:
    from profd.daemon.store.reader import RunReader

ALL_TOGETHER = 1 << 40
"""So many minutes are longer than any run."""


class StackMinuteRow(msgspec.Struct, frozen=True):
    """What was seen of a thread in one stack, over one minute or some; ``minute`` is the first of them.

    ``until_ns`` is when the last interval ends. The utilization of the GPUs is known for ``known_ns`` of the time, and
    that weighted with it is ``busy_ns``. ``idle``: while these were idle, ``cpu``: while the thread was on the CPU.
    """

    thread: int
    minute: int
    stack: int
    samples: Count
    duration_ns: Time
    until_ns: Time
    known_ns: Time
    busy_ns: Value
    idle_samples: Count
    idle_ns: Time
    cpu_samples: Count
    cpu_ns: Time
    both_samples: Count
    both_ns: Time


class IdleMinute(msgspec.Struct, frozen=True):
    """For how long of a minute of the run a thread stood in a stack while the GPUs of its process were idle."""

    thread: int
    minute: int
    stack: int
    idle_ns: Time


class PointMinuteRow(msgspec.Struct, frozen=True):
    """The readings of a series in a minute; see table ``point_minute``."""

    minute: int
    readings: Count
    known_ns: Time
    area: float
    least: Value
    most: Value
    last_ns: Time

    @property
    def aggregate(self) -> Aggregate:
        """What the series was in the minute."""
        return Aggregate(self.known_ns, self.area, self.least, self.most)


class SummedRow(msgspec.Struct, frozen=True):
    """The sums have the intervals of a process that start in [from_ns, to_ns); its recordings end at ``end_ns``."""

    process: int
    from_ns: Time
    to_ns: Time
    end_ns: Time


class Span(NamedTuple):
    """A range of time of a thread, [from_ns, to_ns)."""

    thread: int
    from_ns: int
    to_ns: int


def stack_minutes(
    reader: RunReader, threads: Collection[int], first: int, last: int, together: int = 1
) -> list[StackMinuteRow]:
    """Return the sums of some threads over the minutes from ``first`` up to, not including, ``last``.

    So many minutes are added ``together``, those since the run's start; in order of time where they are several.
    """
    if together == 1:
        sql = f"SELECT * FROM stack_minute WHERE {_minutes_of(threads)} ORDER BY thread, minute, stack"
        return _rows(reader, sql, first, last)
    sql = f"SELECT thread, ?, stack, {added_up()} FROM stack_minute WHERE {_minutes_of(threads)} GROUP BY thread, stack"
    if together >= ALL_TOGETHER:
        return _rows(reader, sql, 0, first, last)
    found: list[StackMinuteRow] = []
    # To sort a few at a time is quicker than to sort them all.
    while (minute := _next_minute(reader, threads, first)) is not None and minute < last:
        begin = minute // together * together
        found += _rows(reader, sql, begin, first, min(begin + together, last))
        first = begin + together
    return found


def minute_times(reader: RunReader, threads: Collection[int], first: int, last: int) -> list[ColumnTime]:
    """Return for how long threads stood in which stack: so much of ``stack_minutes`` as a picture needs."""
    sql = f"SELECT minute, thread, stack, duration_ns FROM stack_minute WHERE {_minutes_of(threads)}"
    rows = reader.select(ColumnTime, sql, first, last)
    reader.check_known(stacks={row[2] for row in rows})
    return [ColumnTime(*row) for row in rows]


def _minutes_of(threads: Collection[int]) -> str:
    """Return a condition on sums by the minute, as SQL with two open values."""
    return f"thread IN ({_listed(threads)}) AND minute >= ? AND minute < ?"


def _listed(threads: Collection[int]) -> str:
    return ",".join(str(int(thread)) for thread in threads)


def _next_minute(reader: RunReader, threads: Collection[int], first: int) -> int | None:
    """Return the first minute from this one on that has sums of any of some threads; None where there is none."""
    of_thread = "(SELECT min(minute) FROM stack_minute AS sum WHERE sum.thread = thread.id AND minute >= ?)"
    sql = f"SELECT min({of_thread}) FROM thread WHERE id IN ({_listed(threads)})"
    minute: int | None = reader.select(_MinuteRow, sql, first)[0][0]
    return minute


def stack_hours(reader: RunReader, threads: Collection[int], hours: range) -> list[StackMinuteRow]:
    """Return the sums of some threads over whole hours, which the file has to have of all of them, by stack."""
    where = f"thread IN ({_listed(threads)}) AND hour >= ? AND hour < ?"
    first = hours.start * HOUR_MINUTES
    sql = f"SELECT thread, {first}, stack, {added_up()} FROM stack_hour WHERE {where} GROUP BY thread, stack"
    return _rows(reader, sql, hours.start, hours.stop)


def _rows(reader: RunReader, sql: str, *values: int) -> list[StackMinuteRow]:
    rows = reader.select(StackMinuteRow, sql, *values)
    reader.check_known({row[0] for row in rows}, {row[2] for row in rows})
    return [StackMinuteRow(*row) for row in rows]


def span_totals(reader: RunReader, spans: Sequence[Span]) -> list[StackTotal]:
    """Return by thread and stack the intervals that start in the spans of their threads: in one scan."""
    if not spans:
        return []
    values = ", ".join(f"({span.thread:d}, {span.from_ns:d}, {span.to_ns:d})" for span in spans)
    sql = f"""
        WITH span (thread, from_ns, to_ns) AS (VALUES {values})
        SELECT interval.thread, stack, sum(samples), sum(duration_ns) FROM interval CROSS JOIN span
        WHERE start_ns >= ? AND start_ns < ? AND span.thread = interval.thread
        AND start_ns >= from_ns AND start_ns < to_ns GROUP BY 1, 2
    """
    begin_ns, end_ns = min(span.from_ns for span in spans), max(span.to_ns for span in spans)
    found = [StackTotal(*row) for row in reader.select(StackTotal, sql, begin_ns, end_ns)]
    reader.check_known({one.thread for one in found}, {one.stack for one in found})
    return found


def idle_minutes(reader: RunReader, threads: Collection[int], minute: int) -> list[IdleMinute]:
    """Return for how long some threads stood in which stack while GPUs were idle, by the minutes from one on."""
    where = f"thread IN ({_listed(threads)}) AND minute >= ? AND idle_ns > 0"
    rows = reader.select(IdleMinute, f"SELECT {columns_of(IdleMinute)} FROM stack_minute WHERE {where}", minute)
    reader.check_known(stacks={row[2] for row in rows})
    return [IdleMinute(*row) for row in rows]


def count_stack_minutes(reader: RunReader) -> int:
    """Return how many sums of a minute a run file has, of all threads."""
    # Of a column: rows alone are counted in one instruction, which nothing ends in a file that goes in circles.
    return int(reader.select(_CountRow, "SELECT count(minute) FROM stack_minute")[0][0])


def point_minutes(reader: RunReader, series: int, first: int, last: int) -> list[PointMinuteRow]:
    """Return the sums of a series over the minutes from ``first`` up to, not including, ``last``.

    The newest minute of a live run is not among them.
    """
    if not reader.has_table("point_minute"):
        return []
    columns = ", ".join(PointMinuteRow.__struct_fields__)
    sql = f"SELECT {columns} FROM point_minute WHERE series = ? AND minute >= ? AND minute < ? ORDER BY minute"
    return [PointMinuteRow(*row) for row in reader.select(PointMinuteRow, sql, series, first, last)]


class _CountRow(msgspec.Struct, frozen=True):
    count: Count


class _MinuteRow(msgspec.Struct, frozen=True):
    minute: int | None
