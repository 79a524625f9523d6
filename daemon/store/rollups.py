"""Reads the sums of a run file: what was seen of threads and series per minute of the run.

The newest part of a live run has no sums yet. ``StoredRollups`` splits a range of time into the
minutes that the sums cover, and a rest to be read interval by interval. Both together give what all
intervals would give, to the nanosecond. Recently requested sums are cached, because a dashboard
asks for nearly the same again and again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import proxy

import msgspec

from profd.daemon.clock import MINUTE_NS
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store.database import listed
from profd.daemon.store.records import Count, IntervalLength, Time, Value
from profd.daemon.store.rows import ColumnTime, StackTotal, count_total
from profd.daemon.store.stepfunction import Aggregate
from profd.daemon.timerange import TimeRange

if TYPE_CHECKING:
    from profd.daemon.store.reader import RunReader

ALL_TOGETHER = 1 << 40  # more minutes than any run has
LEAST_MINUTES = 2  # fewer minutes are read from the intervals as quickly
HOUR_MINUTES = 60
ENDED_LONG_AGO_NS = 5 * MINUTE_NS
"""What a process or a series did is summed up for good once it has been silent for this long.

A series that goes on after all begins anew, like one that was never read.
"""
_KEPT = 12


_NEARLY_IDLE = {"nearly_idle_samples": "idle_samples", "nearly_idle_ns": "idle_ns"}


class StackMinuteRow(msgspec.Struct, frozen=True, rename=_NEARLY_IDLE):
    """What was seen of a thread in one stack, over one minute or several.

    ``minute`` is the first of them. ``until_ns`` is when the last interval ends. The utilization of
    the GPUs is known for ``known_ns`` of the time; ``busy_ns`` is that time weighted with it, so
    they were idle for ``known_ns - busy_ns``. ``nearly_idle`` fields count while the utilization
    was below ``RECORDING.idle_below``, ``cpu`` fields while the thread was on the CPU, ``both``
    fields while both held.
    """

    thread: int
    minute: int
    stack: int
    samples: Count
    duration_ns: Time
    until_ns: Time
    known_ns: Time
    busy_ns: Value
    nearly_idle_samples: Count
    nearly_idle_ns: Time
    cpu_samples: Count
    cpu_ns: Time
    both_samples: Count
    both_ns: Time


FIELDS = StackMinuteRow.__struct_encode_fields__[3:]
"""The columns to be added up over several minutes, in the order of the tables and the fields."""
ADDED_UP = ", ".join(f"{'max' if name == 'until_ns' else 'sum'}({name})" for name in FIELDS)


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
        return Aggregate(self.known_ns, self.area, self.least, self.most)


class SummedRow(msgspec.Struct, frozen=True):
    """The sums contain the intervals of a process that start in [from_ns, to_ns)."""

    process: int
    from_ns: Time
    to_ns: Time


class Rest(NamedTuple):
    """Threads, and a range of time in which their intervals have to be read one by one."""

    threads: frozenset[int]
    time: TimeRange


class Split(NamedTuple):
    """How a range of time of ``threads`` is split.

    The sums cover all of its ``minutes``; ``rest`` lies outside of them. ``hours``, which are among
    the minutes, have sums per hour, too. If ``is_settled``, the sums no longer change while the run
    goes on.
    """

    threads: frozenset[int]
    minutes: range
    hours: range
    rest: tuple[TimeRange, ...]
    is_settled: bool


class StoredRollups:
    """The sums of the run file that a reader has open, with a cache of recent requests."""

    def __init__(self, reader: RunReader) -> None:
        self._reader: RunReader = proxy(reader)
        self._processes: tuple[int, Mapping[int, SummedRow]] = (-1, {})
        self._growing: dict[Rest, tuple[int, dict[tuple[int, int], StackTotal]]] = {}
        """What lies beside the sums at the end of a run that grows, up to one recording."""
        self._ends_ns: dict[int, int] = {}
        self._ends_read_to = 0
        self._kept: dict[tuple[Split, int], list[StackMinuteRow]] = {}

    def processes(self) -> Mapping[int, SummedRow]:
        """Return by process what the sums contain of it.

        Empty if the file is older than the tables of sums.
        """
        version = self._reader.version()
        if self._processes[0] != version:
            # Read before the ends of recordings: whatever is written meanwhile is then read one by
            # one, and counts once.
            rows = self._reader.fetch_from("summed_process", SummedRow)
            newest = self._reader.newest_id("recording")
            for process, time in self._recorded(self._ends_read_to, newest).items():
                before_ns = self._ends_ns.get(process, 0)
                if time.from_ns < before_ns:  # it came late
                    self._growing.clear()
                self._ends_ns[process] = max(time.to_ns, before_ns)
            self._ends_read_to = newest
            self._processes = (
                version,
                {row.process: row for row in rows if row.process in self._ends_ns},
            )
        return self._processes[1]

    def split(self, time: TimeRange, threads: Collection[int]) -> list[Split]:
        """Return how a range of time is to be read, for groups of threads."""
        info = self._reader.info
        inside = time.within(info.time)
        known = self.processes() if inside.length_ns >= LEAST_MINUTES * MINUTE_NS else {}
        alike: defaultdict[Split, set[int]] = defaultdict(set)
        for thread in threads:
            summed = known.get(self._reader.threads[thread].process)
            recorded_ns = 0 if summed is None else self._ends_ns[summed.process]
            alike[_split(info.started_ns, time, summed, recorded_ns)].add(thread)
        return [one._replace(threads=frozenset(some)) for one, some in alike.items()]

    def by_stack(self, one: Split) -> list[StackMinuteRow]:
        """Return the sums of a split by thread and stack.

        They are cached, because a run that grows is asked for nearly the same again and again.
        """
        key = one, 0 if one.is_settled else self._reader.newest_id("recording")
        rows = self._kept.pop(key, None)
        if rows is None:
            rows = _stack_sums(self._reader, one)
        if len(rows) <= 50_000:
            self._kept[key] = rows
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return rows

    def sums(
        self, time: TimeRange, threads: Collection[int]
    ) -> tuple[list[StackMinuteRow], list[Rest]]:
        """Return the stored sums of a range of time, and what lies outside of them.

        The sums are to be added up.
        """
        splits = self.split(time, threads)
        return [row for one in splits for row in self.by_stack(one)], [
            Rest(one.threads, rest) for one in splits for rest in one.rest
        ]

    def beside(self, rest: Rest) -> Iterable[StackTotal]:
        """Return by thread and stack the intervals that lie outside of the sums.

        At the end of a run that grows, what was recorded since the last call is added to what was
        read then.
        """
        reader = self._reader
        if rest.time.has_end or reader.info.state == "ended":
            return reader.stack_totals(rest.time, rest.threads)
        self.processes()
        newest = self._ends_read_to
        recording, totals = self._growing.pop(rest, (0, {}))
        if recording:
            new = self._recorded(recording, newest)
            of_threads = ((one, new.get(reader.threads[one].process)) for one in rest.threads)
            spans = [(one, time.within(rest.time)) for one, time in of_threads if time is not None]
            found = span_totals(reader, spans)
        else:
            found = reader.stack_totals(rest.time, rest.threads)
        for total in found:
            count_total(totals, total)
        # Whatever was written during this read may or may not be included. If anything was, the
        # next call reads all of it anew.
        if newest == reader.newest_id("recording"):
            self._growing[rest] = newest, totals
        if len(self._growing) > _KEPT:
            del self._growing[next(iter(self._growing))]
        return totals.values()

    def _recorded(self, after: int, last: int) -> dict[int, TimeRange]:
        """Return by process from when to when the recordings with the ids after one reach."""
        sql = (
            "SELECT process, min(start_ns), max(end_ns) FROM recording WHERE id > ? AND id <= ? "
            "GROUP BY process"
        )
        found = self._reader.select(tuple[int, Time, Time], sql, after, last)
        return {process: TimeRange(start_ns, end_ns) for process, start_ns, end_ns in found}


def hours_in(time: TimeRange) -> range:
    """Return the hours since the run's start that lie entirely in a range of time since then."""
    hour_ns = HOUR_MINUTES * MINUTE_NS
    first = max(-(-time.from_ns // hour_ns), 0)
    return range(first, max(time.to_ns // hour_ns, first))


def _split(started_ns: int, time: TimeRange, summed: SummedRow | None, recorded_ns: int) -> Split:
    """Return how a range of time of a process is to be read.

    Its recordings end at ``recorded_ns``. The result names no threads yet.
    """
    none = frozenset[int]()
    one_by_one = Split(none, range(0), range(0), (time,), is_settled=False)
    if summed is None:
        return one_by_one
    begin_ns = max(summed.from_ns, time.from_ns)
    first = -((started_ns - begin_ns) // MINUTE_NS)
    end_ns = min(summed.to_ns, time.to_ns) if summed.to_ns < recorded_ns else time.to_ns
    last = (end_ns - started_ns) // MINUTE_NS
    if last - first < LEAST_MINUTES:
        return one_by_one
    first_ns, last_ns = started_ns + first * MINUTE_NS, started_ns + last * MINUTE_NS
    rest: list[TimeRange] = []
    if begin_ns and time.from_ns < first_ns:
        rest.append(TimeRange(time.from_ns, first_ns))
    if last_ns < min(recorded_ns, time.to_ns):
        # The same for all processes, so that they are read in one scan.
        rest.append(TimeRange(last_ns, time.to_ns))
    summed_hours = hours_in(TimeRange(summed.from_ns, summed.to_ns).moved(-started_ns))
    start = max(summed_hours.start, -(-first // HOUR_MINUTES))
    hours = range(start, max(min(summed_hours.stop, last // HOUR_MINUTES), start))
    return Split(none, range(first, last), hours, tuple(rest), last_ns <= summed.to_ns)


def stack_minutes(
    reader: RunReader, threads: Collection[int], minutes: range, together: int = 1
) -> list[StackMinuteRow]:
    """Return the sums of threads over ``minutes`` of the run, ``together`` minutes in each.

    They are in order of time.
    """
    if not minutes:
        return []
    where = _among(threads, "minute")
    if together == 1:
        sql = f"SELECT * FROM stack_minute WHERE {where} ORDER BY thread, minute, stack"
        return reader.known(reader.fetch(StackMinuteRow, sql, minutes.start, minutes.stop))
    sql = (
        f"SELECT thread, ?, stack, {ADDED_UP} FROM stack_minute WHERE {where} GROUP BY "
        "thread, stack"
    )
    found: list[StackMinuteRow] = []
    # Sorting a few at a time is faster than sorting all.
    of_thread = (
        "(SELECT min(minute) FROM stack_minute AS sum WHERE sum.thread = thread.id AND minute >= ?)"
    )
    next_minute = f"SELECT min({of_thread}) FROM thread WHERE id IN ({listed(threads)})"
    first = minutes.start
    while (
        minute := reader.value(int | None, next_minute, first)
    ) is not None and minute < minutes.stop:
        begin = minute // together * together
        found += reader.fetch(
            StackMinuteRow, sql, begin, first, min(begin + together, minutes.stop)
        )
        first = begin + together
    return reader.known(found)


def _stack_sums(reader: RunReader, one: Split) -> list[StackMinuteRow]:
    """Return the sums of a split: of its hours, and of the minutes before and after them."""
    if not one.minutes:
        return []
    first, last = one.minutes.start, one.minutes.stop
    hours = one.hours.start * HOUR_MINUTES, one.hours.stop * HOUR_MINUTES
    head, tail = hours if one.hours else (last, last)
    parts = (
        ("minute", first, head),
        ("hour", one.hours.start, one.hours.stop),
        ("minute", tail, last),
    )
    rows = " UNION ALL ".join(
        f"SELECT * FROM stack_{unit} WHERE {_among(one.threads, unit)}" for unit, _, _ in parts
    )
    sql = f"SELECT thread, ?, stack, {ADDED_UP} FROM ({rows}) GROUP BY thread, stack"
    bounds = [bound for _, *part in parts for bound in part]
    return reader.known(reader.fetch(StackMinuteRow, sql, first, *bounds))


def minute_times(
    reader: RunReader,
    threads: Collection[int],
    minutes: range,
    time: str = "duration_ns",
    stacks: Collection[int] | None = None,
) -> list[ColumnTime]:
    """Return a time of each stack, or of some, per minute, without rows whose time is 0.

    It is the part of ``stack_minutes`` that a picture needs.
    """
    sql = (
        f"SELECT minute, thread, stack, {time} FROM stack_minute WHERE "
        f"{_among(threads, 'minute')} AND {time} > 0"
    )
    if stacks is not None:
        sql += f" AND stack IN ({listed(stacks)})"
    return (
        reader.known(reader.fetch(ColumnTime, sql, minutes.start, minutes.stop)) if minutes else []
    )


def _among(threads: Collection[int], unit: str) -> str:
    return f"thread IN ({listed(threads)}) AND {unit} >= ? AND {unit} < ?"


def span_totals(reader: RunReader, spans: Sequence[tuple[int, TimeRange]]) -> list[StackTotal]:
    """Return by thread and stack the intervals that start in a range of time of their thread.

    They are read in one scan.
    """
    if not spans:
        return []
    values = ", ".join(
        f"({thread:d}, {from_ns:d}, {to_ns:d})" for thread, (from_ns, to_ns) in spans
    )
    sql = f"""
        WITH span (thread, from_ns, to_ns) AS (VALUES {values})
        SELECT interval.thread, stack, sum(samples), sum(duration_ns) FROM interval CROSS JOIN span
        WHERE start_ns >= ? AND start_ns < ? AND span.thread = interval.thread
        AND start_ns >= from_ns AND start_ns < to_ns GROUP BY 1, 2
    """
    from_ns, to_ns = min(time.from_ns for _, time in spans), max(time.to_ns for _, time in spans)
    return reader.known(reader.fetch(StackTotal, sql, from_ns, to_ns))


def count_stack_minutes(reader: RunReader) -> int:
    """Return how many sums per minute a run file has, of all threads."""
    # Count a column: SQLite counts mere rows in one instruction, which nothing could stop in a file
    # whose pages form a circle.
    return int(reader.value(Count, "SELECT count(minute) FROM stack_minute"))


_OF_SERIES = "series = ? AND minute >= ? AND minute < ?"


def point_minutes(reader: RunReader, series: int, minutes: range) -> list[PointMinuteRow]:
    """Return the sums of a series by the minute.

    The newest minute of a live run is not among them.
    """
    where = f"{_OF_SERIES} ORDER BY minute"
    asked = series, minutes.start, minutes.stop
    return reader.fetch_from("point_minute", PointMinuteRow, where, *asked)


def minutes_total(
    reader: RunReader, series: int, minutes: range
) -> list[tuple[int, int, int, float, float, float]]:
    """Return what ``point_minutes`` gives as a single row; none if it gives nothing.

    The row has the first and the last of the minutes, and an ``Aggregate``.
    """
    sql = (
        "SELECT min(minute), max(minute), sum(known_ns), sum(area), min(least), max(most) FROM "
        f"point_minute WHERE {_OF_SERIES} GROUP BY series"
    )
    if not reader.has_table("point_minute"):
        return []
    return reader.select(
        tuple[int, int, Time, float, Value, Value], sql, series, minutes.start, minutes.stop
    )


class Grid(NamedTuple):
    """Columns of ``column_ns`` each, counted from ``origin_ns``."""

    origin_ns: int
    column_ns: int


# The end of the column in which an interval starts.
_COLUMN_END = ":origin + ((start_ns - :origin) / :column + 1) * :column"


def stack_times(
    reader: RunReader, grid: Grid, first: int, last: int, threads: Collection[int]
) -> list[ColumnTime]:
    """Return the time of threads by stack in the columns [``first``, ``last``).

    An interval that overlaps several columns is cut at their bounds. Few do, so only they are read
    one by one.
    """
    origin_ns, column_ns = grid
    from_ns, to_ns = origin_ns + first * column_ns, origin_ns + last * column_ns
    times = {"origin": origin_ns, "column": column_ns, "from": from_ns, "to": to_ns}
    among = f"start_ns < :to AND thread IN ({listed(threads)})"
    within = f"""
        SELECT (start_ns - :origin) / :column AS at, thread, stack,
            sum(min(duration_ns, {_COLUMN_END} - start_ns))
        FROM interval WHERE start_ns >= :from AND {among} GROUP BY at, thread, stack
    """
    across = f"""
        SELECT start_ns, duration_ns, thread, stack FROM interval
        WHERE start_ns >= :back AND {among} AND start_ns + duration_ns > max(:from, {_COLUMN_END})
    """
    found = reader.fetch(ColumnTime, within, **times)
    times["back"] = from_ns - RECORDING.longest_ns
    for start_ns, duration_ns, thread, stack in reader.select(
        tuple[Time, IntervalLength, int, int], across, **times
    ):
        end_ns = start_ns + duration_ns
        begins = (start_ns - origin_ns) // column_ns
        ends = (end_ns - 1 - origin_ns) // column_ns
        found += [
            ColumnTime(
                column, thread, stack, min(end_ns - (origin_ns + column * column_ns), column_ns)
            )
            for column in range(max(begins + 1, first), min(ends + 1, last))
        ]
    return reader.known(found)
