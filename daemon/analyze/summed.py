"""What the sums of a run file tell of a selection, and what has to be read one by one beside them.

Sums are of whole minutes, and of the newest part of a live run there are none yet. Both together are what reading
all of it one by one would give, to the nanosecond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.sums.held import IDLE_BELOW, MINUTE_NS
from profd.daemon.store.sums.stored import ALL_TOGETHER, StackMinuteRow, SummedRow, stack_minutes, summed_processes

LEAST_MINUTES = 5
"""Of fewer minutes the intervals are read as quickly."""
MINUTES = range(-ALL_TOGETHER, ALL_TOGETHER)


class Rest(NamedTuple):
    """Threads, and a range of time in which their intervals have to be read one by one."""

    threads: frozenset[int]
    from_ns: int | None
    to_ns: int | None


class Told(NamedTuple):
    """Threads, the minutes of which the sums tell all of a selection, and what lies beside these minutes."""

    threads: frozenset[int]
    minutes: range
    rest: tuple[Rest, ...]


def are_summed(conditions: Iterable[Condition]) -> bool:
    """Say whether there are sums of the time for which some conditions held."""
    return all(one.name == "on-cpu" or one == Condition("gpu-idle", IDLE_BELOW) for one in conditions)


def part(row: StackMinuteRow, conditions: Iterable[Condition]) -> tuple[int, int]:
    """Return the samples and the time of a sum while some conditions held, of which there are sums."""
    names = {one.name for one in conditions}
    if not names:
        return row.samples, row.duration_ns
    if len(names) > 1:
        return row.both_samples, row.both_ns
    return (row.idle_samples, row.idle_ns) if "gpu-idle" in names else (row.cpu_samples, row.cpu_ns)


def told(reader: RunReader, selection: Selection, threads: frozenset[int]) -> list[Told]:
    """Return by threads of a selection's range of time what the sums tell, whatever held meanwhile."""
    by_minutes: defaultdict[tuple[range, tuple[tuple[int | None, int | None], ...]], set[int]] = defaultdict(set)
    known = summed_processes(reader) if _is_long(reader, selection) else {}
    for thread in threads:
        by_minutes[_split(reader, selection, known.get(reader.threads[thread].process))].add(thread)
    return [
        Told(frozenset(alike), minutes, tuple(Rest(frozenset(alike), *one) for one in ranges))
        for (minutes, ranges), alike in by_minutes.items()
    ]


def sums_by_stack(reader: RunReader, one: Told, together: int = ALL_TOGETHER) -> list[StackMinuteRow]:
    """Return the sums of what is told, by thread and stack and so many minutes."""
    minutes = one.minutes
    return stack_minutes(reader, one.threads, minutes.start, minutes.stop, together) if minutes else []


def _is_long(reader: RunReader, selection: Selection) -> bool:
    from_ns = reader.info.started_ns if selection.from_ns is None else selection.from_ns
    to_ns = reader.info.end_ns if selection.to_ns is None else selection.to_ns
    return to_ns - from_ns >= LEAST_MINUTES * MINUTE_NS


def _split(
    reader: RunReader, selection: Selection, summed: SummedRow | None
) -> tuple[range, tuple[tuple[int | None, int | None], ...]]:
    """Return which minutes the sums of a process tell, and the ranges of time beside them."""
    from_ns, to_ns = selection.from_ns, selection.to_ns
    if summed is None:
        return range(0), ((from_ns, to_ns),)
    started_ns = reader.info.started_ns
    is_whole = summed.to_ns >= summed.end_ns
    begin_ns = max(summed.from_ns, from_ns or 0)
    first = -((started_ns - begin_ns) // MINUTE_NS) if begin_ns else MINUTES.start
    end_ns = to_ns if is_whole else min(summed.to_ns, summed.to_ns if to_ns is None else to_ns)
    last = MINUTES.stop if end_ns is None else (end_ns - started_ns) // MINUTE_NS
    if last - first < LEAST_MINUTES:
        return range(0), ((from_ns, to_ns),)
    rest: list[tuple[int | None, int | None]] = []
    if first != MINUTES.start:
        rest.append((from_ns, started_ns + first * MINUTE_NS))
    if last != MINUTES.stop:
        rest.append((started_ns + last * MINUTE_NS, min(summed.end_ns, summed.end_ns if to_ns is None else to_ns)))
    return range(first, last), tuple(one for one in rest if one[0] is None or one[1] is None or one[0] < one[1])
