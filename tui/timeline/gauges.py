"""The series of numbers that the dashboard shows: newest values, and cells for the timeline, each computed once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.columns import Grid, point_means
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, SeriesRow
from profd.tui.snapshot import Gauge
from profd.tui.timeline.bins import FINEST_NS, MOST_BINS, Ruler, TimeBins, means_of_means, sums_of_means
from profd.tui.view import Range

GPU_MEMORY_OF_PROCESS = "gpu_process_memory_bytes"
PROCESS_SERIES = ("cpu_cores", "rss_bytes", "threads", GPU_MEMORY_OF_PROCESS)
HOST_SERIES = ("host_cpu_share", "profd_cpu_cores")
GPU_SERIES = "gpu_utilization_share"
GPU_MEMORY_SERIES = "gpu_memory_used_bytes"
GPU_POWER_SERIES = "gpu_power_watts"
STRIPS = (
    ("cpu_cores", "mean"),
    ("rss_bytes", "peak"),
    ("host_cpu_share", "mean"),
    (GPU_SERIES, "mean"),
    (GPU_MEMORY_SERIES, "peak"),
    (GPU_POWER_SERIES, "mean"),
)
"""The gauges of the timeline, and what one number says of each where it is of a range and not of now."""
# A value is the mean of the second before it; a longer gap than this is a gap, and is shown as one.
LONGEST_HOLD_NS = 2 * SECOND_NS
# What is older when a run is opened is read by SQL, and a part at a time.
BACKLOG_NS = 600 * SECOND_NS
_BACKLOG_PARTS = 64
# Newer points may still come.
_UNSETTLED_NS = 10 * SECOND_NS
_GRIDS = 32
_LONGEST_MEAN_NS = 60 * SECOND_NS

Cell = float | None


class Gauges:
    """The series of one run."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._newest: dict[int, PointRow] = {}
        self._finished: set[int] = set()
        self._ids: defaultdict[tuple[str, int | None], list[int]] = defaultdict(list)
        self._listed = 0
        self._cells: dict[tuple[str, Grid], dict[int, Cell]] = {}
        info = reader.info
        width_ns = FINEST_NS
        while info.end_ns - info.started_ns > MOST_BINS * width_ns:
            width_ns *= 2
        names = dict.fromkeys((*PROCESS_SERIES, *HOST_SERIES, *(name for name, _ in STRIPS)))
        self._bins = {name: TimeBins[int](info.started_ns, width_ns) for name in names}
        self._backlog_ns = info.started_ns
        self._backlog_end_ns = info.started_ns
        self._list()
        if info.end_ns - info.started_ns > BACKLOG_NS:
            self._begin_backlog()

    @property
    def has_backlog(self) -> bool:
        """Whether older points are still to be read."""
        return self._backlog_ns < self._backlog_end_ns

    @property
    def read_share(self) -> float:
        """How much of the run's time was read, 0 to 1."""
        length_ns = self._backlog_end_ns - self._reader.info.started_ns
        return (self._backlog_ns - self._reader.info.started_ns) / length_ns if length_ns else 1.0

    def catch_up(self) -> None:
        """Take in the points that are new."""
        self._list()
        for series in self._reader.series.values():
            if series.name not in self._bins or series.os_tid is not None or series.id in self._finished:
                continue
            newest = self._newest.get(series.id)
            points = self._reader.points(series.id, newest.at_ns + 1 if newest else None)
            if points:
                _add(self._bins[series.name], series.id, newest, points)
                self._newest[series.id] = points[-1]
            elif self._has_ended(series):
                self._finished.add(series.id)

    def read_backlog(self) -> None:
        """Take in a part of the points that were there when the run was opened."""
        width_ns = self._bins["cpu_cores"].width_ns
        grid = Grid(self._reader.info.started_ns % width_ns, width_ns)
        part_ns = (self._backlog_end_ns - self._reader.info.started_ns) // _BACKLOG_PARTS
        until_ns = min(self._backlog_ns + max(part_ns // width_ns, 1) * width_ns, self._backlog_end_ns)
        first, last = ((at_ns - grid.origin_ns) // width_ns for at_ns in (self._backlog_ns, until_ns + width_ns - 1))
        for name, bins in self._bins.items():
            ids = [series.id for series in self._of_name(name)]
            for column, series, value in point_means(self._reader, grid, first, last, ids):
                start_ns = grid.origin_ns + column * width_ns
                bins.add(series, start_ns, min(start_ns + width_ns, self._backlog_end_ns), value)
        self._backlog_ns = until_ns

    def newest(self, name: str, process: int | None = None) -> float | None:
        """Return the newest value of a process, on all devices together, or of the host; the last of an ended one."""
        points = [self._newest[series] for series in self._ids[name, process] if series in self._newest]
        return sum(point.value for point in points) if points else None

    def mean(self, name: str) -> float | None:
        """Return the mean of a series over the whole run."""
        info = self._reader.info
        return sums_of_means(self._bins[name].columns(Ruler.filling(info.started_ns, info.end_ns, 1)))[0]

    def of_process(self, name: str, process: int, within: Range) -> float | None:
        """Return the mean of a process in a range, in the last minute that it lived of a longer one."""
        ids = self._ids[name, process]
        to_ns = min(within.to_ns, self._reader.processes[process].ended_ns or within.to_ns)
        from_ns = max(within.from_ns, to_ns - _LONGEST_MEAN_NS)
        if not ids or from_ns >= to_ns:
            return None
        means = point_means(self._reader, Grid(from_ns, to_ns - from_ns), 0, 1, ids)
        return sum(mean.value for mean in means) if means else None

    def strips(self, ruler: Ruler, chosen: Range | None) -> tuple[Gauge, ...]:
        """Return the gauges of the timeline, each with one value: of a range, else of now while the run is live."""
        return tuple(self._gauge(name, kind, self.cells(name, ruler), ruler, chosen) for name, kind in STRIPS)

    def cells(self, name: str, ruler: Ruler) -> tuple[Cell, ...]:
        """Return a value for each column; those that can change no more are remembered."""
        known = self._cells.setdefault((name, ruler.grid), {})
        if len(self._cells) > _GRIDS:
            self._cells.pop(next(iter(self._cells)))
        asked = range(ruler.first, ruler.first + ruler.count)
        missing = [column for column in asked if column not in known]
        if not missing:
            return tuple(known[column] for column in asked)
        first, last = missing[0], missing[-1] + 1
        start_ns = ruler.grid.origin_ns + first * ruler.column_ns
        read = dict(
            zip(range(first, last), self._read(name, Ruler(start_ns, ruler.column_ns, last - first)), strict=True)
        )
        settled = (self._settled_ns() - ruler.grid.origin_ns) // ruler.column_ns
        known.update((column, cell) for column, cell in read.items() if column < settled)
        return tuple(read[column] if column in read else known[column] for column in asked)

    def _list(self) -> None:
        """Take note of the series that are new: they are looked for by name and process at each look."""
        for series in list(self._reader.series.values())[self._listed :]:
            if series.os_tid is None:
                self._ids[series.name, series.process].append(series.id)
            self._listed += 1

    def _begin_backlog(self) -> None:
        for series in self._reader.series.values():
            if series.name in self._bins and series.os_tid is None:
                point = self._reader.last_point(series.id)
                if point is not None:
                    self._newest[series.id] = point
        self._backlog_end_ns = max((point.at_ns for point in self._newest.values()), default=self._backlog_ns)

    def _settled_ns(self) -> int:
        """Return up to when no more points are to come."""
        if self.has_backlog:
            return self._backlog_ns
        info = self._reader.info
        return info.end_ns - _UNSETTLED_NS if info.state == "live" else info.end_ns + _UNSETTLED_NS

    def _read(self, name: str, ruler: Ruler) -> Sequence[Cell]:
        """Return the cells of columns: from the bins where these are fine enough, else from the file."""
        one_for_all = means_of_means if name == GPU_SERIES else sums_of_means
        if ruler.column_ns >= self._bins[name].width_ns:
            return one_for_all(self._bins[name].columns(ruler))
        if ruler.column_ns < LONGEST_HOLD_NS:
            bins = TimeBins[int](ruler.from_ns, ruler.column_ns)
            for series in self._of_name(name):
                points = self._reader.points(series.id, ruler.from_ns - LONGEST_HOLD_NS, ruler.to_ns + LONGEST_HOLD_NS)
                _add(bins, series.id, None, points)
            return one_for_all(bins.columns(ruler))
        return self._means(name, ruler)

    def _means(self, name: str, ruler: Ruler) -> Sequence[Cell]:
        values: defaultdict[int, list[float]] = defaultdict(list)
        ids = [series.id for series in self._of_name(name)]
        for column, _, value in point_means(self._reader, ruler.grid, ruler.first, ruler.first + ruler.count, ids):
            values[column - ruler.first].append(value)
        sums = {column: sum(each) / (len(each) if name == GPU_SERIES else 1) for column, each in values.items()}
        return [sums.get(column) for column in range(ruler.count)]

    def _gauge(self, name: str, kind: str, cells: Sequence[Cell], ruler: Ruler, chosen: Range | None) -> Gauge:
        limit = self._limit() if name == GPU_MEMORY_SERIES else None
        if self._reader.info.state == "live" and chosen is None:
            return Gauge(name, tuple(cells), self._newest_of_all(name), "now", limit)
        if chosen is not None:
            first, last = max(ruler.column_of(chosen.from_ns), 0), max(ruler.column_of(chosen.to_ns - 1), 0) + 1
            inside = cells[first:last]
        else:
            inside = cells
        seen = [cell for cell in inside if cell is not None]
        value = (max(seen) if kind == "peak" else sum(seen) / len(seen)) if seen else None
        return Gauge(name, tuple(cells), value, kind, limit)

    def _limit(self) -> float | None:
        """Return the memory of all GPUs together; None where it is not known of each."""
        sizes = [device.memory_bytes for device in self._reader.devices()]
        return float(sum(size or 0 for size in sizes)) if sizes and all(sizes) else None

    def _newest_of_all(self, name: str) -> float | None:
        """Return the newest values of a name as one: the sum over processes, the mean over GPUs."""
        values = [
            self._newest[series.id].value
            for series in self._of_name(name)
            if series.id in self._newest and not self._has_ended(series)
        ]
        if not values:
            return None
        return sum(values) / len(values) if name == GPU_SERIES else sum(values)

    def _of_name(self, name: str) -> Iterator[SeriesRow]:
        return (series for series in self._reader.series.values() if series.name == name and series.os_tid is None)

    def _has_ended(self, series: SeriesRow) -> bool:
        return series.process is not None and self._reader.processes[series.process].ended_ns is not None


def _add(bins: TimeBins[int], series: int, before: PointRow | None, points: Sequence[PointRow]) -> None:
    """Count each value as that of the time since the one before it."""
    from_ns = before.at_ns if before else points[0].at_ns - SECOND_NS if points else 0
    for point in points:
        bins.add(series, max(from_ns, point.at_ns - LONGEST_HOLD_NS), point.at_ns, point.value)
        from_ns = point.at_ns
