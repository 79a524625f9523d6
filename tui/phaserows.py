"""The main threads on the timeline: their phases by column.

Columns of two minutes or more are drawn from whole minutes, which are read from the sums once for
all columns that contain them; narrower ones from the intervals. If reading takes too long while
somebody waits, columns are drawn from a part of each, and read gradually.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from profd.daemon.analyze.phases import PHASES, PhaseIndex
from profd.daemon.analyze.profile import Profile, phase_shares
from profd.daemon.clock import SECOND_NS
from profd.daemon.naming import process_title
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Grid, minute_times, stack_times
from profd.daemon.store.rows import ColumnTime, RecordingRow
from profd.daemon.store.stepfunction import MINUTE_NS
from profd.tui.bins import Ruler
from profd.tui.snapshot import PhaseRow, PhaseShare
from profd.tui.view import Range

# This much time, summed over all main threads, can be read interval by interval in about a tenth of
# a second.
EXACT_NS = 1200 * SECOND_NS
# This many minutes, summed over all main threads, can be read from the sums in that time.
MINUTES_AT_ONCE = 128
WIDE_NS = 2 * MINUTE_NS
GRIDS = 4
# A column that is not read yet is estimated from this much time after its middle.
_PART_NS = SECOND_NS // 2

Cells = tuple[tuple[PhaseShare, ...], ...]
Phases = dict[str, int]
Column = dict[int, Phases]
"""By thread: the nanoseconds of each phase."""


def shown_shares(profile: Profile, phases: PhaseIndex) -> tuple[PhaseShare, ...]:
    """Return the phases of a profile, the largest first."""
    return tuple(
        PhaseShare(phase, share) for phase, share in phase_shares(profile, phases).items() if share
    )


class PhaseRows:
    """The phases of a run's main threads by columns, for the grids that were drawn last."""

    def __init__(self, reader: RunReader, phases: PhaseIndex) -> None:
        self._reader, self._phases = reader, phases
        self._known: OrderedDict[Grid, dict[int, Column]] = OrderedDict()
        self._sampled: dict[tuple[int, int], Column] = {}
        """The estimate from a part of a column, by the column's start and end."""
        self._ruler = Ruler(0, 1, 0)
        self._is_stale = True
        self._cells: dict[int, Cells] = {}

    def add(self, recordings: Iterable[RecordingRow]) -> None:
        """Forget the columns in which something was recorded since."""
        for recording in recordings:
            self._is_stale = True
            for (origin_ns, column_ns), known in self._known.items():
                first, last = (
                    (at_ns - origin_ns) // column_ns
                    for at_ns in (recording.start_ns, recording.end_ns)
                )
                for column in range(first, last + 1):
                    known.pop(column, None)

    def ids(self) -> list[int]:
        return [thread.id for thread in self._reader.main_threads()]

    def cells(self, ruler: Ruler) -> dict[int, Cells]:
        """Return by main thread the mixture of its phases in each column.

        Threads that were not seen are left out.
        """
        if ruler != self._ruler:
            self._ruler, self._is_stale = ruler, True
            self._sampled.clear()
        if self._is_stale:
            self.read_backlog()
            self._is_stale = False
            known = self._known_of(self._source()[0])
            columns = [self._column(known, index) for index in range(ruler.count)]
            seen = {thread for column in columns for thread in column}
            self._cells = {
                thread: tuple(_mixture(column.get(thread, {})) for column in columns)
                for thread in seen
            }
        return self._cells

    @property
    def is_drawn(self) -> bool:
        return self._ruler.count > 0

    @property
    def has_backlog(self) -> bool:
        return bool(self._missing())

    @property
    def read_share(self) -> float:
        return 1.0 - len(self._missing()) / max(len(self._source()[1]), 1)

    def read_backlog(self) -> None:
        """Read some of the missing columns that were drawn last, the newest first."""
        missing = self._missing()
        if not missing:
            return
        self._is_stale = True
        grid, _ = self._source()
        is_wide = grid != self._ruler.grid
        threads = max(len(self.ids()), 1)
        at_once = MINUTES_AT_ONCE // threads if is_wide else EXACT_NS // (grid.column_ns * threads)
        known = self._known_of(grid)
        for first, last in _stretches(missing[-max(at_once, 1) :]):
            times = (
                self._minutes(first, last)
                if is_wide
                else stack_times(self._reader, grid, first, last, self.ids())
            )
            for column in range(first, last):
                known[column] = {}
            for one in times:
                self._count(
                    known[min(max(one.column, first), last - 1)], one.thread, one.stack, one.time_ns
                )

    def rows(
        self, ruler: Ruler, shares: Mapping[int, tuple[PhaseShare, ...]]
    ) -> tuple[PhaseRow, ...]:
        """Return the rows of the main threads, by rank.

        ``shares`` are those of their phases over the whole view. A row is labeled by its rank or
        number, or by its PID if there are several without one.
        """
        cells = self.cells(ruler)
        threads = [
            row for row in self._reader.main_threads() if row.id in cells or row.id in shares
        ]
        ranked = [(self._reader.processes[row.process], row.id) for row in threads]
        ranked.sort(key=lambda pair: (pair[0].rank is None, pair[0].rank or 0, pair[1]))
        rows, empty = [], ((),) * ruler.count
        for process, thread in ranked:
            is_numbered = len(ranked) == 1 or (process.rank, process.ordinal) != (None, None)
            label = (
                process_title(process.role, process.ordinal, process.rank)
                if is_numbered
                else str(process.pid)
            )
            rows.append(PhaseRow(label, cells.get(thread, empty), shares.get(thread, ())))
        return tuple(rows)

    def _source(self) -> tuple[Grid, range]:
        """Return the grid from which the last drawn columns are made, and its columns in them."""
        ruler, info = self._ruler, self._reader.info
        if ruler.column_ns < WIDE_NS:
            return ruler.grid, range(ruler.first, ruler.first + ruler.count)
        grid = Grid(info.started_ns, MINUTE_NS)
        first = max(ruler.from_ns - grid.origin_ns, 0) // MINUTE_NS
        return grid, range(first, -((grid.origin_ns - min(ruler.to_ns, info.end_ns)) // MINUTE_NS))

    def _known_of(self, grid: Grid) -> dict[int, Column]:
        known = self._known.setdefault(grid, {})
        self._known.move_to_end(grid)
        while len(self._known) > GRIDS:
            self._known.popitem(last=False)
        return known

    def _missing(self) -> list[int]:
        grid, asked = self._source()
        known = self._known.get(grid, {})
        return [column for column in asked if column not in known]

    def _column(self, known: Mapping[int, Column], index: int) -> Column:
        """Return a column of the ruler.

        It is the column as read, the sum of its minutes that were read, or an estimate from a part.
        """
        ruler = self._ruler
        if ruler.column_ns < WIDE_NS:
            parts = [known[ruler.first + index]] if ruler.first + index in known else []
        else:
            begin_ns = ruler.from_ns + index * ruler.column_ns - self._reader.info.started_ns
            # A minute belongs to the column in which its middle lies.
            first, last = (
                round(at_ns / MINUTE_NS) for at_ns in (begin_ns, begin_ns + ruler.column_ns)
            )
            parts = [known[minute] for minute in range(first, last) if minute in known]
        found: Column = {}
        for thread, phases in (item for part in parts for item in part.items()):
            sums = found.setdefault(thread, {})
            for phase, time_ns in phases.items():
                sums[phase] = sums.get(phase, 0) + time_ns
        return found if parts else self._estimate(index)

    def _estimate(self, index: int) -> Column:
        from_ns = self._ruler.from_ns + index * self._ruler.column_ns
        to_ns = min(from_ns + self._ruler.column_ns, self._reader.info.end_ns)
        column = self._sampled.get((from_ns, to_ns))
        if column is None:
            column = self._sampled[from_ns, to_ns] = {}
            middle_ns = from_ns + self._ruler.column_ns // 2
            for total in self._reader.stack_totals(
                middle_ns, min(middle_ns + _PART_NS, to_ns), self.ids()
            ):
                self._count(column, total.thread, total.stack, total.duration_ns)
        return column

    def _minutes(self, first: int, last: int) -> Iterator[ColumnTime]:
        """Yield the time of the main threads by stack in minutes of the run.

        It comes from the sums as far as they have it.
        """
        info = self._reader.info
        grid = Grid(info.started_ns, MINUTE_NS)
        asked = Range(info.started_ns + first * MINUTE_NS, info.started_ns + last * MINUTE_NS)
        for one in self._reader.rollups.split(*asked.open_at(Range.of(info)), self.ids()):
            yield from minute_times(self._reader, one.threads, one.minutes)
            for rest in one.rest:
                begin = (
                    first if rest.from_ns is None else (rest.from_ns - info.started_ns) // MINUTE_NS
                )
                end = last if rest.to_ns is None else (rest.to_ns - info.started_ns) // MINUTE_NS
                yield from stack_times(self._reader, grid, begin, end, rest.threads)

    def _count(self, column: Column, thread: int, stack: int, time_ns: int) -> None:
        phases = column.setdefault(thread, {})
        phase = self._phases.of_stack(stack)
        phases[phase] = phases.get(phase, 0) + time_ns


def _stretches(columns: Sequence[int]) -> list[tuple[int, int]]:
    among = set(columns)
    starts = (column for column in columns if column - 1 not in among)
    return list(
        zip(starts, (column + 1 for column in columns if column + 1 not in among), strict=True)
    )


def _mixture(phases: Phases) -> tuple[PhaseShare, ...]:
    whole_ns = sum(phases.values())
    return tuple(
        PhaseShare(phase.name, phases[phase.name] / whole_ns)
        for phase in PHASES
        if phases.get(phase.name)
    )
