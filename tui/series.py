"""The series of numbers that the dashboard shows: newest values, and cells for the timeline."""

from __future__ import annotations

import math
import operator
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator

from msgspec.structs import replace

from profd.daemon.analyze.coverage import COST_SERIES
from profd.daemon.analyze.memory import memory_trend
from profd.daemon.analyze.series import take_course, total_of
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Grid
from profd.daemon.store.rows import SeriesRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS
from profd.daemon.timerange import EVER, TimeRange
from profd.tui.columns import Columns, Ruler, Sums, parts_of
from profd.tui.snapshot import Series
from profd.tui.view import shown_part

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
# Newer points may still come.
_UNSETTLED_NS = 10 * SECOND_NS
MOST_READINGS = 500
"""More readings than this in a column, at one a second, are read from the sums per minute.

A cell is then a minute or longer.
"""
_MEANS = 4096
_NEVER_MINUTES = 1 << 40

Measured = tuple[str, str]
"""A series, and what of it is added up: its ``area`` over the ``time`` for which it is known."""
Cell = float | None


class RunSeries:
    """The series of one run."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self.columns = Columns[Measured](reader, self._read)
        self._ids: defaultdict[tuple[str, int | None], list[int]] = defaultdict(list)
        self._rows: defaultdict[str, list[SeriesRow]] = defaultdict(list)
        self._listed = self._read_to_ns = 0
        self._means: dict[tuple[str, int | None, TimeRange], float | None] = {}

    def catch_up(self) -> None:
        """Register new series, and read the columns again of which newer points may have come."""
        for row in self._reader.list_series(*_STRIPS, *_NUMBERS, after_id=self._listed):
            self._listed = row.id
            if row.os_tid is None:
                self._rows[row.name].append(row)
                self._ids[row.name, row.process].append(row.id)
        before_ns, self._read_to_ns = self._read_to_ns, self._reader.info.end_ns
        if before_ns != self._read_to_ns:
            self.columns.forget(before_ns - _UNSETTLED_NS)

    def last(self, name: str, process: int | None, within: TimeRange = EVER) -> float | None:
        """Return the last value of a process, or of the host, summed over all devices.

        It is the last one up to the end of a range, or the newest.
        """
        to_ns = within.open_at(self._reader.info.time).to_ns
        points = [self._reader.last_point(series, to_ns) for series in self._ids[name, process]]
        values = [point.value for point in points if point is not None]
        return sum(values) if values else None

    def mean(self, name: str, process: int | None, within: TimeRange) -> float | None:
        """Return the mean of a process or of the host in a range, over all devices together.

        A value that can no longer change is remembered.
        """
        asked = (name, process, within)
        if asked not in self._means:
            of_devices = (total_of(self._reader, one, within) for one in self._ids[name, process])
            means = [one.mean for one in of_devices if one.mean is not None]
            mean = _of_all(name, means)
            info = self._reader.info
            if info.is_live and within.to_ns > info.end_ns - _UNSETTLED_NS:
                return mean
            if len(self._means) >= _MEANS:
                self._means.clear()
            self._means[asked] = mean
        return self._means[asked]

    def strips(self, ruler: Ruler, chosen: TimeRange | None) -> tuple[Series, ...]:
        """Return the series of the timeline, each with one value.

        The value is of the chosen range, or else of now while the run is live.
        """
        info, strips = self._reader.info, []
        about = chosen or shown_part(ruler.time, info.time)
        first, last = (max(ruler.column_of(at_ns), 0) for at_ns in (about.from_ns, about.to_ns - 1))
        columns = self.columns.take(ruler)
        for name, kind in _STRIPS.items():
            cells = tuple(_mean(name, sums) for sums in columns)
            seen = [cell for cell in cells[first : last + 1] if cell is not None]
            if info.is_live and chosen is None:
                value, kind = self._newest_of_all(name), "now"
            elif kind == "mean" and self._ids[name, None]:
                value = self.mean(name, None, about)
            else:  # of all processes, which may be many
                value = (max(seen) if kind == "peak" else sum(seen) / len(seen)) if seen else None
            strips.append(Series(name, cells, value, kind, self._limit(name)))
        return tuple(strips)

    def _read(self, grid: Grid, first: int, last: int) -> list[Sums[Measured]]:
        found = {column: defaultdict[Measured, float](float) for column in range(first, last)}
        asked = TimeRange(first * grid.column_ns, last * grid.column_ns).moved(grid.origin_ns)
        for name in _STRIPS:
            # A process that lives for a part of a column, as workers do, counts for that part. Of
            # GPUs the mean is shown.
            joined: Callable[[float, float], float] = operator.add if name == GPU_SERIES else max
            rows = list(self._living(name, asked))
            is_much = len(rows) * grid.column_ns > MOST_READINGS * SECOND_NS
            least_minutes = 1 if is_much or grid.column_ns >= MINUTE_NS else _NEVER_MINUTES
            for row in rows:
                known_ns = Counter[int]()
                course = take_course(self._reader, row.id, asked, least_minutes)
                for step in course.steps():
                    for column, length_ns in parts_of(grid, step.start_ns, step.end_ns):
                        if column in found:
                            known_ns[column] += length_ns
                            found[column][name, "area"] += step.value * length_ns
                for column, length_ns in known_ns.items():
                    sums = found[column]
                    sums[name, "time"] = joined(sums[name, "time"], length_ns)
        return list(found.values())

    def _living(self, name: str, time: TimeRange) -> Iterator[SeriesRow]:
        """Yield the series of processes that lived at some time in a range, and of the host."""
        for row in self._rows[name]:
            process = self._reader.processes.get(row.process or 0)
            if process is None or process.life.longer(_UNSETTLED_NS).overlaps(time):
                yield row

    def _limit(self, name: str) -> float | None:
        """Return the memory of all GPUs together, for the series of GPU memory.

        None if it is not known of each.
        """
        if name != GPU_MEMORY_SERIES:
            return None
        sizes = [device.memory_bytes for device in self._reader.devices()]
        return float(sum(filter(None, sizes))) if sizes and all(sizes) else None

    def _newest_of_all(self, name: str) -> float | None:
        processes = self._reader.processes
        living = [
            row.id
            for row in self._rows[name]
            if row.process is None or processes[row.process].ended_ns is None
        ]
        return _of_all(name, self._reader.newest_values(living).values())


def _of_all(name: str, values: Collection[float]) -> float | None:
    """Return the mean of GPUs, or the sum of what processes use."""
    whole = statistics.fmean if name == GPU_SERIES else math.fsum
    return whole(values) if values else None


def _mean(name: str, sums: Sums[Measured] | None) -> Cell:
    """Return the mean of a series in a column; None if nothing was read in it."""
    known = sums or {}
    time_ns = known.get((name, "time"))
    return known[name, "area"] / time_ns if time_ns else None


def with_slope(series: Series, ruler: Ruler) -> Series:
    """Return a series of memory with its slope, if its strip is long enough for one.

    Other series are returned unchanged.
    """
    if series.name != "rss_bytes":
        return series
    seen = {number: cell for number, cell in enumerate(series.cells) if cell is not None}
    times_s = [(ruler.from_ns + (number + 0.5) * ruler.column_ns) / SECOND_NS for number in seen]
    found = memory_trend(times_s, list(seen.values()))
    if found is None:
        return series
    return replace(series, slope_per_s=found.slope_per_s, is_growing=found.is_growing)
