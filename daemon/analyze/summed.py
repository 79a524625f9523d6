"""What the sums of a run file tell of a selection, and what has to be read one by one beside them.

Sums are of whole minutes, and of the newest part of a live run there are none yet. Both together are what reading
all of it one by one would give, to the nanosecond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.sums.held import HOUR_MINUTES, IDLE_BELOW, MINUTE_NS, hours_between
from profd.daemon.store.sums.stored import (
    ALL_TOGETHER,
    StackMinuteRow,
    SummedRow,
    stack_hours,
    stack_minutes,
    summed_processes,
)

LEAST_MINUTES = 5
"""Of fewer minutes the intervals are read as quickly."""
MINUTES = range(-ALL_TOGETHER, ALL_TOGETHER)


class Rest(NamedTuple):
    """Threads, and a range of time in which their intervals have to be read one by one."""

    threads: frozenset[int]
    from_ns: int | None
    to_ns: int | None


class Told(NamedTuple):
    """Threads, the minutes of which the sums tell all of a selection, and what lies beside these minutes.

    Of ``hours``, which are among the minutes, there are sums by the hour too.
    """

    threads: frozenset[int]
    minutes: range
    hours: range
    rest: tuple[Rest, ...]


def are_summed(conditions: Iterable[Condition]) -> bool:
    """Say whether there are sums of the time for which some conditions held."""
    return all(one.name == "on-cpu" or one == Condition("gpu-idle", IDLE_BELOW) for one in conditions)


def part_while(conditions: Iterable[Condition]) -> Callable[[StackMinuteRow], tuple[int, int]]:
    """Return what gives the samples and the time of a sum while some conditions held, of which there are sums."""
    return attrgetter(*_PARTS[frozenset(one.name for one in conditions)])


def parts_while(parts: Iterable[Iterable[Condition]]) -> Callable[[StackMinuteRow], tuple[int, ...]]:
    """Return what gives the samples and the time of a sum for each of some parts, all in one row."""
    return attrgetter(*(name for part in parts for name in _PARTS[frozenset(one.name for one in part)]))


_PARTS: Mapping[frozenset[str], tuple[str, str]] = {
    frozenset(): ("samples", "duration_ns"),
    frozenset({"gpu-idle"}): ("idle_samples", "idle_ns"),
    frozenset({"on-cpu"}): ("cpu_samples", "cpu_ns"),
    frozenset({"gpu-idle", "on-cpu"}): ("both_samples", "both_ns"),
}


def told(
    reader: RunReader,
    selection: Selection,
    threads: frozenset[int],
    summed: Mapping[int, SummedRow] | None = None,
) -> list[Told]:
    """Return by threads of a selection's range of time what the sums tell, whatever held meanwhile.

    ``summed`` are the ``summed_processes``, for whoever has read them already since the last recording.
    """
    alike: defaultdict[_Split, set[int]] = defaultdict(set)
    known = (summed_processes(reader) if summed is None else summed) if _is_long(reader, selection) else {}
    for thread in threads:
        alike[_split(reader, selection, known.get(reader.threads[thread].process))].add(thread)
    return [
        Told(frozenset(some), split.minutes, split.hours, tuple(Rest(frozenset(some), *one) for one in split.rest))
        for split, some in alike.items()
    ]


def sums_by_minute(reader: RunReader, one: Told, together: int) -> list[StackMinuteRow]:
    """Return the sums of what is told, by thread and stack and so many minutes."""
    minutes = one.minutes
    return stack_minutes(reader, one.threads, minutes.start, minutes.stop, together) if minutes else []


def sums_by_stack(reader: RunReader, one: Told) -> list[StackMinuteRow]:
    """Return the sums of what is told by thread and stack: in up to three parts, to be added up."""
    if not one.minutes:
        return []
    first, last = one.minutes.start, one.minutes.stop
    if not one.hours:
        return stack_minutes(reader, one.threads, first, last, ALL_TOGETHER)
    begin, end = one.hours.start * HOUR_MINUTES, one.hours.stop * HOUR_MINUTES
    return [
        *stack_minutes(reader, one.threads, first, begin, ALL_TOGETHER),
        *stack_hours(reader, one.threads, one.hours),
        *stack_minutes(reader, one.threads, end, last, ALL_TOGETHER),
    ]


class _Split(NamedTuple):
    """How the range of time of a selection is read; what of it is read one by one may be open at either end."""

    minutes: range
    hours: range
    rest: tuple[tuple[int | None, int | None], ...]


def _is_long(reader: RunReader, selection: Selection) -> bool:
    from_ns = reader.info.started_ns if selection.from_ns is None else selection.from_ns
    to_ns = reader.info.end_ns if selection.to_ns is None else selection.to_ns
    return to_ns - from_ns >= LEAST_MINUTES * MINUTE_NS


def _split(reader: RunReader, selection: Selection, summed: SummedRow | None) -> _Split:
    """Return which minutes the sums of a process tell, and the ranges of time beside them."""
    from_ns, to_ns = selection.from_ns, selection.to_ns
    one_by_one = _Split(range(0), range(0), ((from_ns, to_ns),))
    if summed is None:
        return one_by_one
    started_ns = reader.info.started_ns
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
    if last != MINUTES.stop:
        rest.append((started_ns + last * MINUTE_NS, min(summed.end_ns, summed.end_ns if to_ns is None else to_ns)))
    return _Split(range(first, last), _hours(started_ns, summed, first, last), tuple(filter(_is_range, rest)))


def _hours(started_ns: int, summed: SummedRow, first: int, last: int) -> range:
    """Return the hours among some minutes of which a process has sums."""
    summed_hours = hours_between(summed.from_ns - started_ns, summed.to_ns - started_ns)
    start = max(summed_hours.start, -(-first // HOUR_MINUTES))
    return range(start, max(min(summed_hours.stop, last // HOUR_MINUTES), start))


def _is_range(one: tuple[int | None, int | None]) -> bool:
    from_ns, to_ns = one
    return from_ns is None or to_ns is None or from_ns < to_ns
