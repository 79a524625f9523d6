"""The columns of the timeline: where they lie, and what was read of each.

Columns of two minutes or more are whole minutes of the run: these are read once for all columns
that contain them, and the file has sums of them, also for the tables below a column. Narrower
columns are read themselves. A new range is read gradually, the newest columns first, so that nobody
waits for all of a day.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from profd.daemon.clock import MILLISECOND_NS, MINUTE_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Grid
from profd.daemon.timerange import TimeRange

FINEST_NS = 125 * MILLISECOND_NS
WIDE_NS = 2 * MINUTE_NS
MOST_COLUMNS = 4096
"""If more columns are known, only those that are drawn are kept.

A timeline of half a minute has three new columns a second, and may be watched for days.
"""
ENOUGH_S = 0.01
"""Once reading has taken so much CPU time, the rest of the columns is left to the next look.

Columns are read in parts, each twice as large as the one before it: a look takes about twice as
long. The next look begins with as many columns as the last part had. If a single column takes that
long, as with very many processes, a look takes two parts, so that parts become larger.
"""

Key = TypeVar("Key")
Sums = Mapping[Key, float]
"""What was seen in a column, by kind: numbers that can be added up over columns."""
Read = Callable[[Grid, int, int], Sequence[Sums[Key]]]
"""Reads the columns [first, last) of a grid from the run file."""


class Ruler(msgspec.Struct, frozen=True):
    """The columns of a strip.

    Column ``i`` of ``count`` covers ``column_ns`` from ``from_ns + i * column_ns``.
    """

    from_ns: int
    column_ns: int
    count: int

    @property
    def to_ns(self) -> int:
        return self.from_ns + self.count * self.column_ns

    @property
    def time(self) -> TimeRange:
        return TimeRange(self.from_ns, self.to_ns)

    @property
    def grid(self) -> Grid:
        """The columns without an end.

        The first column begins before all times, so that every number is above 0.
        """
        return Grid(self.from_ns % self.column_ns, self.column_ns)

    @property
    def first(self) -> int:
        return self.from_ns // self.column_ns

    def column_of(self, at_ns: int) -> int:
        """Return the column in which a time lies.

        A result below 0, or from ``count`` on, means that it lies in none of them.
        """
        return (at_ns - self.from_ns) // self.column_ns

    def column_at(self, at_ns: int) -> TimeRange:
        start_ns = self.from_ns + self.column_of(at_ns) * self.column_ns
        return TimeRange(start_ns, start_ns + self.column_ns)

    @classmethod
    def filling(cls, from_ns: int, to_ns: int, columns: int) -> Ruler:
        length_ns = max(to_ns - from_ns, 1)
        column_ns = _whole(-(-length_ns // columns))
        return cls(from_ns, column_ns, -(-length_ns // column_ns))

    @classmethod
    def growing(cls, from_ns: int, to_ns: int, columns: int) -> Ruler:
        """Return the ruler for a time that goes on.

        What was drawn stays in place while time grows into the free columns; when none is left,
        each column becomes twice as long.
        """
        column_ns = FINEST_NS
        while to_ns - from_ns > columns * column_ns:
            # From 64 seconds on to two minutes.
            column_ns = 2 * (column_ns - column_ns % MINUTE_NS or column_ns)
        return cls(from_ns, column_ns, max(-(-(to_ns - from_ns) // column_ns), 1))

    @classmethod
    def moving(cls, length_ns: int, to_ns: int, columns: int, begin_ns: int = 0) -> Ruler:
        """Return the ruler for the last ``length_ns``, which moves on by whole columns.

        They are counted from ``begin_ns``, the start of the run.
        """
        column_ns = _whole(-(-length_ns // max(columns - 1, 1)))
        from_ns = to_ns - length_ns - (to_ns - length_ns - begin_ns) % column_ns
        return cls(from_ns, column_ns, min(-(-(to_ns - from_ns) // column_ns), columns))


class Columns(Generic[Key]):
    """What one timeline shows by column, of each grid that was drawn."""

    def __init__(
        self,
        reader: RunReader,
        read: Read[Key],
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._reader, self._read, self._spent_s = reader, read, spent_s
        self.minutes = Grid(reader.info.started_ns, MINUTE_NS)
        self._known: dict[Grid, dict[int, Sums[Key]]] = {}
        self._taken: list[Sums[Key] | None] | None = None
        """What was taken last; None once something else is known."""
        self._ruler = Ruler(0, 1, 0)
        self._at_once, self._enough_s = 1, ENOUGH_S

    def forget(self, since_ns: int) -> None:
        """Read the columns that end after a time again, because something of that time is new."""
        self._taken = None
        for grid, known in self._known.items():
            first = (since_ns - grid.origin_ns) // grid.column_ns
            for column in [column for column in known if column >= first]:
                del known[column]

    def take(self, ruler: Ruler) -> list[Sums[Key] | None]:
        """Return what is known of each column of a ruler, None of those that are still to be read.

        A wide column is known in part if some of its minutes are.
        """
        if ruler.grid != self._ruler.grid:
            self._at_once = 1
        if ruler != self._ruler:
            self._ruler, self._taken = ruler, None
        self.read_on()
        if self._taken is None:
            grid, _ = self._source()
            known = self._known[grid]
            ends_ns = range(ruler.from_ns, ruler.to_ns + 1, ruler.column_ns)
            bounds = [(at_ns - grid.origin_ns) // grid.column_ns for at_ns in ends_ns]
            parts = (
                [known[number] for number in range(first, last) if number in known]
                for first, last in itertools.pairwise(bounds)
            )
            self._taken = [_added(part) if part else None for part in parts]
        return self._taken

    @property
    def is_drawn(self) -> bool:
        return self._ruler.count > 0

    @property
    def has_backlog(self) -> bool:
        return bool(self._missing())

    @property
    def read_share(self) -> float:
        return 1.0 - len(self._missing()) / max(len(self._source()[1]), 1)

    def read_on(self) -> None:
        """Read missing columns of the ruler that was drawn last, the newest first."""
        grid, asked = self._source()
        known = self._known.setdefault(grid, {})
        if sum(map(len, self._known.values())) > MOST_COLUMNS:
            known = {column: known[column] for column in asked if column in known}
            self._known = {grid: known}
        missing, begun_s = self._missing(), self._spent_s()
        self._taken = None if missing else self._taken
        while missing and self._spent_s() - begun_s < self._enough_s:
            for first, last in _stretches(missing[-self._at_once :]):
                known.update(zip(range(first, last), self._read(grid, first, last), strict=True))
            del missing[-self._at_once :]
            if self._at_once == 1:
                self._enough_s = max(1.5 * (self._spent_s() - begun_s), ENOUGH_S)
            self._at_once *= 2
        self._at_once = max(self._at_once // 2, 1)

    def _source(self) -> tuple[Grid, range]:
        """Return the grid from which the drawn columns are made, and its columns in them."""
        ruler, info = self._ruler, self._reader.info
        if ruler.column_ns < WIDE_NS:
            return ruler.grid, range(ruler.first, ruler.first + ruler.count)
        begin_ns = self.minutes.origin_ns
        first = max(ruler.from_ns - begin_ns, 0) // MINUTE_NS
        last = -((begin_ns - min(ruler.to_ns, info.end_ns)) // MINUTE_NS)
        return self.minutes, range(first, last)

    def _missing(self) -> list[int]:
        grid, asked = self._source()
        known = self._known.get(grid, {})
        return [column for column in asked if column not in known]


def _whole(column_ns: int) -> int:
    """Return a length for columns that is one of minutes if they are wide."""
    return column_ns if column_ns < WIDE_NS else -(-column_ns // MINUTE_NS) * MINUTE_NS


def parts_of(grid: Grid, from_ns: int, to_ns: int) -> Iterator[tuple[int, int]]:
    """Yield the columns that [from_ns, to_ns) overlaps, each with the length of that in ns."""
    while from_ns < to_ns:
        column = (from_ns - grid.origin_ns) // grid.column_ns
        end_ns = min(grid.origin_ns + (column + 1) * grid.column_ns, to_ns)
        yield column, end_ns - from_ns
        from_ns = end_ns


def _added(parts: Iterable[Sums[Key]]) -> Sums[Key]:
    whole: defaultdict[Key, float] = defaultdict(float)
    for part in parts:
        for key, number in part.items():
            whole[key] += number
    return whole


def _stretches(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first column of each unbroken row of columns, and the one after its last."""
    among = set(columns)
    starts = (column for column in columns if column - 1 not in among)
    ends = (column + 1 for column in columns if column + 1 not in among)
    return list(zip(starts, ends, strict=True))
