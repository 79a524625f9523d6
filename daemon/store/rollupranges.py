"""What the sums of a run file have of a range of time, and what has to be read interval by interval beside them.

Sums are of whole minutes, and of the newest part of a live run there are none yet. Both together are what reading all
intervals would give, to the nanosecond. What was asked for last is kept: a dashboard asks for nearly the same again and
again.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from weakref import proxy

import msgspec

from profd.daemon.store.rolluprows import (
    ALL_TOGETHER,
    Span,
    StackMinuteRow,
    SummedRow,
    minute_times,
    span_totals,
    stack_hours,
    stack_minutes,
)
from profd.daemon.store.rows import ColumnTime, StackTotal, Time, count_total
from profd.daemon.store.stepfunction import HOUR_MINUTES, MINUTE_NS, hours_between

if TYPE_CHECKING:
    from profd.daemon.store.reader import RunReader

MINUTES = range(-ALL_TOGETHER, ALL_TOGETHER)
LEAST_MINUTES = 2
"""Of fewer minutes the intervals are read as quickly."""
_KEPT = 12
_MOST_ROWS_KEPT = 50_000


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


class StoredRollups:
    """The sums of the run file that a reader has open, with those that were asked for last."""

    def __init__(self, reader: RunReader) -> None:
        self._reader: RunReader = proxy(reader)
        self._processes: tuple[int, Mapping[int, SummedRow]] = (-1, {})
        self._growing: dict[tuple[frozenset[int], int | None], _Growing] = {}
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
        minutes = one.minutes
        return minute_times(self._reader, one.threads, minutes.start, minutes.stop) if minutes else []

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

    def beside(self, rest: Rest) -> Iterable[StackTotal]:
        """Return by thread and stack the intervals that lie beside the sums.

        At the end of a run that grows, what was recorded since the last call is added to what was read then.
        """
        reader = self._reader
        if rest.to_ns is not None or reader.info.state == "ended":
            return reader.stack_totals(rest.from_ns, rest.to_ns, rest.threads)
        key = rest.threads, rest.from_ns
        growing = self._growing.pop(key, None) or _Growing()
        newest = reader.newest_id("recording")
        if not (growing.recording and self._add_recorded(growing, rest)):
            growing = _Growing()
            growing.add(reader.stack_totals(rest.from_ns, None, rest.threads))
            growing.recording, growing.ends_ns = newest, self._ends_ns.copy()
        # What was written while it was read may be in it, or not: then it is read anew at the next call.
        if newest == self._ends_read_to == reader.newest_id("recording"):
            self._growing[key] = growing
        if len(self._growing) > _KEPT:
            del self._growing[next(iter(self._growing))]
        return growing.totals.values()

    def _add_recorded(self, growing: _Growing, rest: Rest) -> bool:
        """Add what was recorded since; False where a recording came late, so that nothing is known."""
        threads: defaultdict[int, list[int]] = defaultdict(list)
        for thread in rest.threads:
            threads[self._reader.threads[thread].process].append(thread)
        spans: list[Span] = []
        for row in self._reader.recordings_after(growing.recording):
            if row.start_ns < growing.ends_ns.get(row.process, 0):
                return False
            growing.ends_ns[row.process], growing.recording = row.end_ns, row.id
            start_ns = max(row.start_ns, rest.from_ns or row.start_ns)
            spans += [Span(thread, start_ns, row.end_ns) for thread in threads[row.process]]
        growing.add(span_totals(self._reader, spans))
        return True

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


class _Growing:
    """What was seen at the end of a run that grows, up to one recording, and when those of each process end."""

    __slots__ = ("ends_ns", "recording", "totals")

    def __init__(self) -> None:
        self.recording = 0
        self.ends_ns: dict[int, int] = {}
        self.totals: dict[tuple[int, int], StackTotal] = {}

    def add(self, totals: Iterable[StackTotal]) -> None:
        """Count what was seen."""
        for total in totals:
            count_total(self.totals, total)


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


class _EndRow(msgspec.Struct, frozen=True):
    process: int
    end_ns: Time


class _SummedRow(msgspec.Struct, frozen=True):
    process: int
    from_ns: Time
    to_ns: Time
