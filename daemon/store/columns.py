"""Sums of intervals by columns of time, made in SQL: for runs that are too large to be read row by row."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import IntervalLength, Time
from profd.daemon.store.rows import ColumnTime

LOOK_BACK_NS = 60 * SECOND_NS
"""How far ahead of a range an interval may start that reaches into it: none is longer than its recording."""


class Grid(NamedTuple):
    """Columns of ``column_ns`` each, counted from ``origin_ns``."""

    origin_ns: int
    column_ns: int


class _Across(msgspec.Struct, frozen=True):
    """An interval that reaches beyond the column that it starts in."""

    start_ns: Time
    duration_ns: IntervalLength
    thread: int
    stack: int


# The end of the column in which an interval starts.
_COLUMN_END = ":origin + ((start_ns - :origin) / :column + 1) * :column"


def stack_times(reader: RunReader, grid: Grid, first: int, last: int, threads: Collection[int]) -> list[ColumnTime]:
    """Return the time of threads by stack in the columns from ``first`` up to, not including, ``last``.

    An interval that lies in several columns is cut at their bounds. Few do, so they alone are read one by one.
    """
    origin_ns, column_ns = grid
    from_ns, to_ns = origin_ns + first * column_ns, origin_ns + last * column_ns
    times = {"origin": origin_ns, "column": column_ns, "from": from_ns, "to": to_ns}
    among = f"start_ns < :to AND thread IN ({','.join(str(int(thread)) for thread in threads)})"
    within = f"""
        SELECT (start_ns - :origin) / :column AS at, thread, stack, sum(min(duration_ns, {_COLUMN_END} - start_ns))
        FROM interval WHERE start_ns >= :from AND {among} GROUP BY at, thread, stack
    """
    across = f"""
        SELECT start_ns, duration_ns, thread, stack FROM interval
        WHERE start_ns >= :back AND {among} AND start_ns + duration_ns > max(:from, {_COLUMN_END})
    """
    found = reader.fetch(ColumnTime, within, **times)
    for start_ns, duration_ns, thread, stack in reader.select(_Across, across, **times, back=from_ns - LOOK_BACK_NS):
        end_ns = start_ns + duration_ns
        begins = (start_ns - origin_ns) // column_ns
        ends = (end_ns - 1 - origin_ns) // column_ns
        found += [
            ColumnTime(column, thread, stack, min(end_ns - (origin_ns + column * column_ns), column_ns))
            for column in range(max(begins + 1, first), min(ends + 1, last))
        ]
    reader.check_known({one.thread for one in found}, {one.stack for one in found})
    return found
