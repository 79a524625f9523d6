"""The series of numbers that the dashboard shows: newest values, and cells for the timeline."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from profd.daemon.analyze.coverage import COST_SERIES
from profd.daemon.analyze.memory import memory_trend
from profd.daemon.analyze.series import take_course
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Grid
from profd.daemon.store.rows import PointRow, SeriesRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS, MINUTE_NS, StepBuilder
from profd.tui.bins import Ruler, TimeBins, means_of_means, means_of_sum
from profd.tui.snapshot import Series
from profd.tui.view import Range

GPU_SERIES = "gpu_utilization_share"
GPU_MEMORY_SERIES = "gpu_memory_used_bytes"
GPU_POWER_SERIES = "gpu_power_watts"
_STRIPS = {
    "cpu_cores": "mean",
    "rss_bytes": "peak",
    "host_cpu_share": "mean",
    GPU_SERIES: "mean",
    GPU_MEMORY_SERIES: "peak",
    GPU_POWER_SERIES: "mean",
}
"""The series of the timeline, and whether one number for a range is its mean or its peak.

For now the number is always the newest value.
"""
_NUMBERS = ("threads", MEMORY_OF_PROCESS, COST_SERIES)
"""Series of which the newest value is shown, too."""
# Older readings than this, when a run is opened, are read a part at a time.
BACKLOG_NS = 600 * SECOND_NS
_BACKLOG_PARTS = 64
# Newer points may still come.
_UNSETTLED_NS = 10 * SECOND_NS
_GRIDS = 32
MOST_READINGS = 50_000
"""More readings than this, at one a second, are read from the sums per minute.

A cell is then a minute or longer.
"""
_MEANS = 4096
_NEVER_MINUTES = 1 << 40

Cell = float | None


class RunSeries:
    """The series of one run."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._newest: dict[int, PointRow] = {}
        self._builders: dict[int, StepBuilder] = {}
        self._finished: set[int] = set()
        self._ids: defaultdict[tuple[str, int | None], list[int]] = defaultdict(list)
        self._rows: list[SeriesRow] = []
        self._listed = 0
        self._cells: dict[tuple[str, Grid], dict[int, Cell]] = {}
        self._means: dict[tuple[str, int | None, Range], float | None] = {}
        info = reader.info
        length_ns = info.end_ns - info.started_ns
        self._bins = {name: TimeBins(info.started_ns) for name in _STRIPS}
        self._backlog_ns = self._backlog_end_ns = info.started_ns
        self._by_minutes: set[str] = set()
        self._list()
        if length_ns > BACKLOG_NS:
            self._backlog_end_ns = info.end_ns - _UNSETTLED_NS
            self._by_minutes = {name for name in _STRIPS if self._is_much(name, length_ns)}

    @property
    def has_backlog(self) -> bool:
        return self._backlog_ns < self._backlog_end_ns

    @property
    def read_share(self) -> float:
        length_ns = self._backlog_end_ns - self._reader.info.started_ns
        return (self._backlog_ns - self._reader.info.started_ns) / length_ns if length_ns else 1.0

    def catch_up(self) -> None:
        self._list()
        for row in self._rows:
            if row.id in self._finished:
                continue
            if row.id in self._builders:
                newest = self._newest.get(row.id)
                points = self._reader.points(row.id, newest.at_ns + 1 if newest else None)
            else:  # at first also those that say since when the first one holds
                self._builders[row.id] = StepBuilder()
                points = self._reader.readings(row.id, self._backlog_end_ns, None)
            if points:
                self._newest[row.id] = points[-1]
            elif self._has_ended(row):
                self._finished.add(row.id)
                del self._builders[row.id]
            if row.name in self._bins:
                for point in points:
                    for step in self._builders[row.id].add(point.at_ns, point.value):
                        start_ns = max(step.start_ns, self._backlog_end_ns)
                        self._bins[row.name].add(row.id, start_ns, step.end_ns, step.value)

    def read_backlog(self) -> None:
        """Take in a part of the points that existed when the run was opened."""
        length_ns = self._backlog_end_ns - self._reader.info.started_ns
        unit_ns = MINUTE_NS if self._by_minutes else SECOND_NS
        part_ns = max(length_ns // _BACKLOG_PARTS // unit_ns, 1) * unit_ns
        until_ns = min(self._backlog_ns + part_ns, self._backlog_end_ns)
        for name, bins in self._bins.items():
            self._add(bins, name, self._backlog_ns, until_ns, by_minutes=name in self._by_minutes)
        self._backlog_ns = until_ns

    def newest(self, name: str, process: int | None = None) -> float | None:
        """Return the newest value of a process, summed over all devices, or of the host.

        For an ended process this is its last value.
        """
        values = [
            self._newest[series].value
            for series in self._ids[name, process]
            if series in self._newest
        ]
        return sum(values) if values else None

    def last(self, name: str, process: int, within: Range) -> float | None:
        """Return the last value of a process up to the end of a range, summed over all devices."""
        _, to_ns = within.open_at(Range.of(self._reader.info))
        points = [self._reader.last_point(series, to_ns) for series in self._ids[name, process]]
        values = [point.value for point in points if point is not None]
        return sum(values) if values else None

    def mean(self, name: str, process: int | None, within: Range) -> float | None:
        """Return the mean of a process or of the host in a range, over all devices together.

        A value that can no longer change is remembered.
        """
        asked = (name, process, within)
        if asked not in self._means:
            courses = [
                take_course(self._reader, one, within.from_ns, within.to_ns)
                for one in self._ids[name, process]
            ]
            means = [mean for course in courses if (mean := course.total().mean) is not None]
            whole = statistics.fmean if name == GPU_SERIES else math.fsum
            mean = whole(means) if means else None
            if within.to_ns > self._settled_ns():
                return mean
            if len(self._means) >= _MEANS:
                self._means.clear()
            self._means[asked] = mean
        return self._means[asked]

    def strips(self, ruler: Ruler, chosen: Range | None) -> tuple[Series, ...]:
        """Return the series of the timeline, each with one value.

        The value is of the chosen range, or else of now while the run is live.
        """
        info, strips = self._reader.info, []
        about = chosen or Range(ruler.from_ns, ruler.to_ns).within(Range.of(info))
        first, last = (max(ruler.column_of(at_ns), 0) for at_ns in (about.from_ns, about.to_ns - 1))
        for name, kind in _STRIPS.items():
            cells = self.cells(name, ruler)
            seen = [cell for cell in cells[first : last + 1] if cell is not None]
            if info.state == "live" and chosen is None:
                value, kind = self._newest_of_all(name), "now"
            elif kind == "mean" and self._ids[name, None]:
                value = self.mean(name, None, about)
            else:  # of all processes, which may be many
                value = (max(seen) if kind == "peak" else sum(seen) / len(seen)) if seen else None
            strips.append(Series(name, cells, value, kind, self._limit(name)))
        return tuple(strips)

    def cells(self, name: str, ruler: Ruler) -> tuple[Cell, ...]:
        """Return a value for each column; values that can no longer change are remembered."""
        known = self._cells.setdefault((name, ruler.grid), {})
        if len(self._cells) > _GRIDS:
            self._cells.pop(next(iter(self._cells)))
        asked = range(ruler.first, ruler.first + ruler.count)
        missing = [column for column in asked if column not in known]
        if not missing:
            return tuple(known[column] for column in asked)
        first, last = missing[0], missing[-1] + 1
        part = Ruler(ruler.grid.origin_ns + first * ruler.column_ns, ruler.column_ns, last - first)
        # Use the bins if they are fine enough, otherwise the file.
        bins = self._bins[name]
        if ruler.column_ns < max(bins.width_ns, MINUTE_NS if name in self._by_minutes else 0):
            bins = TimeBins(part.from_ns, part.column_ns)
            by_minutes = self._is_much(name, part.to_ns - part.from_ns)
            self._add(bins, name, part.from_ns, part.to_ns, by_minutes=by_minutes)
        one_for_all = means_of_means if name == GPU_SERIES else means_of_sum
        read = dict(zip(range(first, last), one_for_all(bins.columns(part)), strict=True))
        settled = (self._settled_ns() - ruler.grid.origin_ns) // ruler.column_ns
        known.update((column, cell) for column, cell in read.items() if column < settled)
        return tuple(read[column] if column in read else known[column] for column in asked)

    def _list(self) -> None:
        """Register new series, because each look finds them by name and process."""
        for row in self._reader.list_series(*_STRIPS, *_NUMBERS, after_id=self._listed):
            self._listed = row.id
            if row.os_tid is None:
                self._rows.append(row)
                self._ids[row.name, row.process].append(row.id)

    def _is_much(self, name: str, length_ns: int) -> bool:
        return sum(1 for _ in self._of_name(name)) * length_ns > MOST_READINGS * SECOND_NS

    def _add(
        self, bins: TimeBins, name: str, from_ns: int, to_ns: int, *, by_minutes: bool
    ) -> None:
        """Count the values of series in a range of time.

        With ``by_minutes`` it counts whole minutes from the sums, if there are any.
        """
        least_minutes = 1 if by_minutes else _NEVER_MINUTES
        for row in self._of_name(name):
            for step in take_course(self._reader, row.id, from_ns, to_ns, least_minutes).steps():
                bins.add(row.id, step.start_ns, step.end_ns, step.value)

    def _settled_ns(self) -> int:
        if self.has_backlog:
            return self._backlog_ns
        info = self._reader.info
        return info.end_ns - _UNSETTLED_NS if info.state == "live" else info.end_ns + _UNSETTLED_NS

    def _limit(self, name: str) -> float | None:
        """Return the memory of all GPUs together, for the series of GPU memory.

        None if it is not known of each.
        """
        if name != GPU_MEMORY_SERIES:
            return None
        sizes = [device.memory_bytes for device in self._reader.devices()]
        return float(sum(size or 0 for size in sizes)) if sizes and all(sizes) else None

    def _newest_of_all(self, name: str) -> float | None:
        rows = (
            row
            for row in self._of_name(name)
            if row.id in self._newest and not self._has_ended(row)
        )
        values = [self._newest[row.id].value for row in rows]
        whole = statistics.fmean if name == GPU_SERIES else math.fsum
        return whole(values) if values else None

    def _of_name(self, name: str) -> Iterator[SeriesRow]:
        return (row for row in self._rows if row.name == name)

    def _has_ended(self, row: SeriesRow) -> bool:
        return row.process is not None and self._reader.processes[row.process].ended_ns is not None


def with_slope(series: Series, ruler: Ruler) -> Series:
    """Return a series of memory with its slope, if its strip is long enough for one.

    Other series are returned unchanged.
    """
    if series.name != "rss_bytes":
        return series
    seen = {number: cell for number, cell in enumerate(series.cells) if cell is not None}
    times_s = [(ruler.from_ns + (number + 0.5) * ruler.column_ns) / SECOND_NS for number in seen]
    found = memory_trend(times_s, list(seen.values()))
    return (
        replace(series, slope_per_s=found.slope_per_s, is_growing=found.is_growing)
        if found
        else series
    )
