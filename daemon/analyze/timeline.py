"""Phases over time: what a thread was mostly doing in each column of a timeline."""

from __future__ import annotations

from collections import Counter

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow

_LOOK_BACK_NS = 60 * SECOND_NS
"""How far ahead of a range an interval may start that reaches into it: none is longer than its recording."""


def phase_columns(
    reader: RunReader, thread_id: int, from_ns: int, to_ns: int, columns: int, phases: PhaseIndex
) -> list[str | None]:
    """Return the phase in which a thread spent most of each of ``columns`` equal parts of [from_ns, to_ns).

    None stands where no interval of the thread overlaps a column. Of phases with equal time the earlier one is taken.
    """
    spent: list[Counter[str]] = [Counter() for _ in range(columns)]
    # In whole nanoseconds: a bound that is rounded differently twice would leave a column empty.
    bounds = [from_ns + (to_ns - from_ns) * column // columns for column in range(columns + 1)]
    for interval in reader.intervals(from_ns - _LOOK_BACK_NS, to_ns, [thread_id]):
        _spend(interval, phases.of_stack(interval.stack), bounds, spent)
    return [max(column, key=column.__getitem__) if column else None for column in spent]


def _spend(interval: IntervalRow, phase: str, bounds: list[int], spent: list[Counter[str]]) -> None:
    """Add the time of an interval to the columns that it overlaps."""
    start_ns = max(interval.start_ns, bounds[0])
    end_ns = min(interval.start_ns + interval.duration_ns, bounds[-1])
    if start_ns >= end_ns:
        return
    column = (start_ns - bounds[0]) * len(spent) // (bounds[-1] - bounds[0])
    while start_ns < end_ns:
        until_ns = min(end_ns, bounds[column + 1])
        if until_ns > start_ns:
            spent[column][phase] += until_ns - start_ns
            start_ns = until_ns
        column += 1
