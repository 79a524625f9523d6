"""Sums by columns of time, made in SQL: what a picture needs of tables that are too large to be read row by row.

Has a connection of its own and belongs to one thread. Knows nothing of what is drawn with the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.rows import PointRow

LOOK_BACK_NS = 60 * SECOND_NS
"""How far ahead of a range an interval may start that reaches into it: none is longer than its recording."""


class Grid(NamedTuple):
    """Columns of ``column_ns`` each, counted from ``origin_ns``."""

    origin_ns: int
    column_ns: int


class ColumnTime(NamedTuple):
    """For how long a thread stood in a stack in a column."""

    column: int
    thread: int
    stack: int
    time_ns: int


class ColumnMean(NamedTuple):
    """The mean of the points of a series in a column."""

    column: int
    series: int
    value: float


class ColumnReader:
    """An open run file. Every method raises RunUnreadable where the file turns out to be damaged."""

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises RunUnreadable where it is no readable run file."""
        self._path = path
        self._connection = database.open_readonly(path)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def stack_times(self, grid: Grid, first: int, last: int, threads: Collection[int]) -> list[ColumnTime]:
        """Return the time of threads by stack in the columns from ``first`` up to, not including, ``last``.

        An interval that lies in several columns is cut at their bounds. Few do, so they alone are read one by one.
        """
        within = [ColumnTime(*row) for row in self._query(_WITHIN + _among(threads) + _BY_STACK, grid, first, last)]
        across = self._query(_ACROSS + _among(threads), grid, first, last)
        return within + [part for row in across for part in _parts(grid, first, last, *row)]

    def point_means(self, grid: Grid, first: int, last: int, series: Collection[int]) -> list[ColumnMean]:
        """Return the means of the points of series in the columns from ``first`` up to, not including, ``last``."""
        found = []
        for one in series:  # one by one: the points of a series lie together
            rows = self._query(_POINTS, grid, first, last, series=one)
            found += [ColumnMean(column, one, value) for column, value in rows]
        return found

    def points_around(self, series: int, at_ns: int) -> tuple[PointRow | None, PointRow | None]:
        """Return the last point of a series up to a time, and the first after it."""
        before = self._connection_rows(_BEFORE, {"series": series, "at": at_ns})
        after = self._connection_rows(_AFTER, {"series": series, "at": at_ns})
        return (PointRow(*before[0]) if before else None), (PointRow(*after[0]) if after else None)

    def newest_recording(self) -> int:
        """Return the id of the recording that was written last, 0 where there is none."""
        return int(self._connection_rows("SELECT coalesce(max(id), 0) FROM recording", {})[0][0])

    def _query(self, sql: str, grid: Grid, first: int, last: int, **values: int) -> list[tuple[Any, ...]]:
        origin_ns, column_ns = grid
        from_ns, to_ns = origin_ns + first * column_ns, origin_ns + last * column_ns
        times = {"origin": origin_ns, "column": column_ns, "from": from_ns, "to": to_ns, "back": from_ns - LOOK_BACK_NS}
        return self._connection_rows(sql, times | values)

    def _connection_rows(self, sql: str, values: dict[str, int]) -> list[tuple[Any, ...]]:
        with database.reading(self._path):
            return self._connection.execute(sql, values).fetchall()


# The end of the column in which an interval starts.
_COLUMN_END = ":origin + ((start_ns - :origin) / :column + 1) * :column"
_WITHIN = f"""
    SELECT (start_ns - :origin) / :column AS at, thread, stack, sum(min(duration_ns, {_COLUMN_END} - start_ns))
    FROM interval WHERE start_ns >= :from AND start_ns < :to
"""
_BY_STACK = " GROUP BY at, thread, stack"
_ACROSS = f"""
    SELECT start_ns, duration_ns, thread, stack FROM interval
    WHERE start_ns >= :back AND start_ns < :to AND start_ns + duration_ns > max(:from, {_COLUMN_END})
"""
_POINTS = """
    SELECT (at_ns - :origin) / :column AS at, avg(value) FROM point
    WHERE series = :series AND at_ns >= :from AND at_ns < :to GROUP BY at
"""
_BEFORE = "SELECT at_ns, value FROM point WHERE series = :series AND at_ns <= :at ORDER BY at_ns DESC LIMIT 1"
_AFTER = "SELECT at_ns, value FROM point WHERE series = :series AND at_ns > :at ORDER BY at_ns LIMIT 1"


def _among(threads: Collection[int]) -> str:
    """Return the condition that an interval is of one of some threads, whose ids are the file's own integers."""
    return f" AND thread IN ({','.join(str(int(thread)) for thread in threads)})"


def _parts(
    grid: Grid, first: int, last: int, start_ns: int, duration_ns: int, thread: int, stack: int
) -> Sequence[ColumnTime]:
    """Return what an interval has in the columns after the one that it starts in."""
    origin_ns, column_ns = grid
    end_ns = start_ns + duration_ns
    begins = (start_ns - origin_ns) // column_ns
    ends = (end_ns - 1 - origin_ns) // column_ns
    return [
        ColumnTime(column, thread, stack, min(end_ns - (origin_ns + column * column_ns), column_ns))
        for column in range(max(begins + 1, first), min(ends + 1, last))
    ]
