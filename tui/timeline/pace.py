"""How fast the run steps, now and by column, from the counts that were read of its loop counter."""

from __future__ import annotations

import itertools
from collections import deque

from profd.daemon.analyze.steps.steps import COUNT_SERIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.columns import ColumnReader, Grid
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow
from profd.tui.snapshot import Gauge, Steps
from profd.tui.timeline.bins import Ruler
from profd.tui.view import Range

GAPS = 8
STEPS = "steps_per_s"
_RECENT_NS = 120 * SECOND_NS
# Counts are seconds apart; after so long without one nobody knows the pace.
_LONGEST_GAP_NS = 60 * SECOND_NS
_GRIDS = 4

Cell = float | None


class Pace:
    """The counts of the training process that tells; ranks step together, so one of them says it for all."""

    def __init__(self, reader: RunReader, columns: ColumnReader) -> None:
        self._reader = reader
        self._columns = columns
        self._series: int | None = None
        self._counts: deque[PointRow] = deque(maxlen=GAPS + 1)
        self._edges: dict[Grid, dict[int, Cell]] = {}

    def catch_up(self) -> None:
        """Take in the counts that are new."""
        if self._series is None:
            self._series = min(
                (row.id for row in self._reader.series.values() if row.name == COUNT_SERIES), default=None
            )
        if self._series is not None:
            last = self._counts[-1] if self._counts else self._reader.last_point(self._series)
            after_ns = self._counts[-1].at_ns + 1 if self._counts else last.at_ns - _RECENT_NS if last else None
            self._counts.extend(self._reader.points(self._series, after_ns))

    def steps(self) -> Steps | None:
        """Return the newest count and the rate up to it; None where there are none."""
        if len(self._counts) < 2:
            return None
        first, last = self._counts[0], self._counts[-1]
        recent = tuple(_per_s(before, after) for before, after in itertools.pairwise(self._counts))
        return Steps(int(last.value), _per_s(first, last), recent)

    def strip(self, ruler: Ruler, chosen: Range | None) -> Gauge:
        """Return the steps a second in each column, and one value: of a range, else of now while the run is live."""
        cells = self._cells(ruler)
        steps = self.steps()
        if chosen is None and self._reader.info.state == "live":
            return Gauge(STEPS, cells, steps.per_s if steps else None, "now")
        about = chosen or Range(ruler.from_ns, ruler.to_ns)
        return Gauge(STEPS, cells, self._rate(about), "mean")

    def _cells(self, ruler: Ruler) -> tuple[Cell, ...]:
        edges = [self._count_at_edge(ruler.grid, ruler.first + column) for column in range(ruler.count + 1)]
        seconds = ruler.column_ns / SECOND_NS
        return tuple(
            None if before is None or after is None else max(after - before, 0.0) / seconds
            for before, after in itertools.pairwise(edges)
        )

    def _rate(self, within: Range) -> float | None:
        """Return the steps a second between the first and the last count in a range."""
        if self._series is None:
            return None
        first = self._columns.points_around(self._series, within.from_ns - 1)[1]
        last = self._columns.points_around(self._series, within.to_ns)[0]
        if first is None or last is None or last.at_ns <= first.at_ns:
            before, after = (self._count_at(at_ns) for at_ns in (within.from_ns, within.to_ns))
            if before is None or after is None:
                return None
            return (after - before) * SECOND_NS / within.length_ns
        return _per_s(first, last)

    def _count_at_edge(self, grid: Grid, column: int) -> Cell:
        """Return the count where a column begins; remembered once a later count is known."""
        known = self._edges.setdefault(grid, {})
        while len(self._edges) > _GRIDS:
            self._edges.pop(next(iter(self._edges)))
        if column not in known:
            at_ns = grid.origin_ns + column * grid.column_ns
            count = self._count_at(at_ns)
            if not self._counts or at_ns >= self._counts[-1].at_ns:
                return count
            known[column] = count
        return known[column]

    def _count_at(self, at_ns: int) -> Cell:
        """Return the count at a time, between those before and after it; None where these are far apart."""
        if self._series is None:
            return None
        before, after = self._columns.points_around(self._series, at_ns)
        if before is None or after is None or after.at_ns - before.at_ns > _LONGEST_GAP_NS:
            return None
        return before.value + (after.value - before.value) * (at_ns - before.at_ns) / (after.at_ns - before.at_ns)


def _per_s(before: PointRow, after: PointRow) -> float:
    return (after.value - before.value) * SECOND_NS / (after.at_ns - before.at_ns)
