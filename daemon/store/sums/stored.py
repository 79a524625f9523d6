"""The sums of a run file as they are read: what was seen of threads and series, by whole minutes since the run's start.

Sums are of whole minutes, and of the newest part of a live run there are none yet. So a range of time is split into
minutes that are in the sums, and what has to be read interval by interval beside them. Both together are what reading
all intervals would give, to the nanosecond.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple
from weakref import proxy

import msgspec

from profd.daemon.store.rows import ColumnTime, Count, Time, Value
from profd.daemon.store.runfile import columns_of
from profd.daemon.store.stepfunction import Aggregate
from profd.daemon.store.sums.held import HOUR_MINUTES, MINUTE_NS, added_up, hours_between

if TYPE_CHECKING:
    from profd.daemon.store.reader import RunReader

ALL_TOGETHER = 1 << 40
"""So many minutes are longer than any run."""
MINUTES = range(-ALL_TOGETHER, ALL_TOGETHER)
LEAST_MINUTES = 2
"""Of fewer minutes the intervals are read as quickly."""
_KEPT = 12
_MOST_ROWS_KEPT = 50_000


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


class Rest(NamedTuple):
    """Threads, and a range of time in which their intervals have to be read one by one; None: open."""

    threads: frozenset[int]
    from_ns: int | None
    to_ns: int | None


class Split(NamedTuple):
    """Threads, the minutes of a range of time of which the sums have all, and what lies beside these minutes.

    Of ``hours``, which are among the minutes, there are sums by the hour too. What ``is_settled`` does not change while
    the run goes on.
    """

    threads: frozenset[int]
    minutes: range
    hours: range
    rest: tuple[Rest, ...]
    is_settled: bool


class StoredSums:
    """The sums of the run file that a reader has open, with those that were asked for last."""

    def __init__(self, reader: RunReader) -> None:
        self._reader: RunReader = proxy(reader)
        self._processes: tuple[int, Mapping[int, SummedRow]] = (-1, {})
        self._ends_ns: dict[int, int] = {}
        self._ends_read_to = 0
        self._kept: OrderedDict[tuple[frozenset[int], str, int, int, int], list[StackMinuteRow]] = OrderedDict()

    def processes(self) -> Mapping[int, SummedRow]:
        """Return by process what of it is in the sums; nothing of a file that is older than they are."""
        version = self._reader.version()
        if self._processes[0] != version:
            self._processes = (version, self._read_processes())
        return self._processes[1]

    def split(self, from_ns: int | None, to_ns: int | None, threads: Collection[int]) -> list[Split]:
        """Return by threads how [from_ns, to_ns) is to be read."""
        info = self._reader.info
        start_ns, end_ns = info.started_ns if from_ns is None else from_ns, info.end_ns if to_ns is None else to_ns
        known = self.processes() if end_ns - start_ns >= LEAST_MINUTES * MINUTE_NS else {}
        alike: defaultdict[_Parts, set[int]] = defaultdict(set)
        for thread in threads:
            summed = known.get(self._reader.threads[thread].process)
            alike[_parts(info.started_ns, from_ns, to_ns, summed)].add(thread)
        return [
            Split(
                some := frozenset(every),
                parts.minutes,
                parts.hours,
                tuple(Rest(some, *one) for one in parts.rest),
                parts.is_settled,
            )
            for parts, every in alike.items()
        ]

    def by_minute(self, one: Split, together: int) -> list[StackMinuteRow]:
        """Return the sums of what is split, by thread and stack and so many minutes."""
        minutes = one.minutes
        return stack_minutes(self._reader, one.threads, minutes.start, minutes.stop, together) if minutes else []

    def times_by_minute(self, one: Split) -> list[ColumnTime]:
        """Return for how long threads stood in which stack, by minute: so much of ``by_minute`` as a picture needs."""
        if not one.minutes:
            return []
        sql = f"SELECT minute, thread, stack, duration_ns FROM stack_minute WHERE {_minutes_of(one.threads)}"
        rows = self._reader.select(ColumnTime, sql, one.minutes.start, one.minutes.stop)
        self._reader.check_known(stacks={row[2] for row in rows})
        return [ColumnTime(*row) for row in rows]

    def by_stack(self, one: Split) -> list[StackMinuteRow]:
        """Return the sums of what is split, by thread and stack: in up to three parts, to be added up."""
        first, last = one.minutes.start, one.minutes.stop
        if not one.hours:
            return self._added_up(one, "minutes", first, last)
        return [
            *self._added_up(one, "minutes", first, one.hours.start * HOUR_MINUTES),
            *self._added_up(one, "hours", one.hours.start, one.hours.stop),
            *self._added_up(one, "minutes", one.hours.stop * HOUR_MINUTES, last),
        ]

    def _added_up(self, one: Split, unit: str, first: int, last: int) -> list[StackMinuteRow]:
        """Return sums over minutes or hours: a run that grows is asked for nearly the same again and again."""
        if first >= last:
            return []
        version = 0 if one.is_settled else self._reader.newest_id("recording")
        key = (one.threads, unit, first, last, version)
        rows = self._kept.pop(key, None)
        if rows is None:
            if unit == "hours":
                rows = stack_hours(self._reader, one.threads, range(first, last))
            else:
                rows = stack_minutes(self._reader, one.threads, first, last, ALL_TOGETHER)
        if len(rows) <= _MOST_ROWS_KEPT:
            self._kept[key] = rows
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return rows

    def _read_processes(self) -> Mapping[int, SummedRow]:
        if not self._reader.has_table("summed_process"):
            return {}
        # Before the ends of recordings: what is written meanwhile is then read one by one, and counts once.
        rows = self._reader.select(_SummedRow, "SELECT process, from_ns, to_ns FROM summed_process")
        newest = self._reader.newest_id("recording")
        sql = "SELECT process, max(end_ns) FROM recording WHERE id > ? AND id <= ? GROUP BY process"
        for process, end_ns in self._reader.select(_EndRow, sql, self._ends_read_to, newest):
            self._ends_ns[process] = max(end_ns, self._ends_ns.get(process, 0))
        self._ends_read_to = newest
        return {
            row[0]: SummedRow(row[0], row[1], row[2], self._ends_ns[row[0]]) for row in rows if row[0] in self._ends_ns
        }


class _Parts(NamedTuple):
    """How a range of time is read of the threads of a process; what is read one by one may be open at either end."""

    minutes: range
    hours: range
    rest: tuple[tuple[int | None, int | None], ...]
    is_settled: bool


def _parts(started_ns: int, from_ns: int | None, to_ns: int | None, summed: SummedRow | None) -> _Parts:
    """Return which minutes of a range the sums of a process have, and the ranges of time beside them."""
    one_by_one = _Parts(range(0), range(0), ((from_ns, to_ns),), is_settled=False)
    if summed is None:
        return one_by_one
    is_whole = summed.to_ns >= summed.end_ns
    begin_ns = max(summed.from_ns, from_ns or 0)
    first = -((started_ns - begin_ns) // MINUTE_NS) if begin_ns else MINUTES.start
    end_ns = to_ns if is_whole else min(summed.to_ns, summed.to_ns if to_ns is None else to_ns)
    last = MINUTES.stop if end_ns is None else (end_ns - started_ns) // MINUTE_NS
    if last - first < LEAST_MINUTES:
        return one_by_one
    rest: list[tuple[int | None, int | None]] = []
    if first != MINUTES.start:
        rest.append((from_ns, started_ns + first * MINUTE_NS))
    if last != MINUTES.stop and started_ns + last * MINUTE_NS < summed.end_ns:
        rest.append((started_ns + last * MINUTE_NS, to_ns))  # the same for all processes: they are read in one scan
    is_settled = started_ns + last * MINUTE_NS <= summed.to_ns
    hours = _hours(started_ns, summed, first, last)
    return _Parts(range(first, last), hours, tuple(filter(_is_range, rest)), is_settled)


def _hours(started_ns: int, summed: SummedRow, first: int, last: int) -> range:
    """Return the hours among some minutes of which a process has sums."""
    summed_hours = hours_between(summed.from_ns - started_ns, summed.to_ns - started_ns)
    start = max(summed_hours.start, -(-first // HOUR_MINUTES))
    return range(start, max(min(summed_hours.stop, last // HOUR_MINUTES), start))


def _is_range(one: tuple[int | None, int | None]) -> bool:
    from_ns, to_ns = one
    return from_ns is None or to_ns is None or from_ns < to_ns


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


class _EndRow(msgspec.Struct, frozen=True):
    process: int
    end_ns: Time


class _SummedRow(msgspec.Struct, frozen=True):
    process: int
    from_ns: Time
    to_ns: Time


class _CountRow(msgspec.Struct, frozen=True):
    count: Count


class _MinuteRow(msgspec.Struct, frozen=True):
    minute: int | None
