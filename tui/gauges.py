"""The series of numbers that the dashboard shows, read as they grow: newest values, and bins for the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, SeriesRow
from profd.tui.bins import Bin, Ruler, TimeBins, means_of_means, sums_of_means
from profd.tui.snapshot import Gauge
from profd.tui.view import Window

PROCESS_SERIES = ("cpu_cores", "rss_bytes", "threads")
HOST_SERIES = ("host_cpu_share", "profd_cpu_cores")
GPU_SERIES = "gpu_utilization_share"
STRIPS = (("cpu_cores", "mean"), ("rss_bytes", "peak"), ("host_cpu_share", "mean"), (GPU_SERIES, "mean"))
"""The gauges of the timeline, and what one number says of each once the run is over."""
# A value is the mean of the second before it; a longer gap than this is a gap, and is shown as one.
LONGEST_HOLD_NS = 2 * SECOND_NS


class Gauges:
    """The series of one run."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._newest: dict[int, PointRow] = {}
        self._finished: set[int] = set()
        self._bins = {
            name: TimeBins[int](reader.info.started_ns) for name in (*PROCESS_SERIES, *HOST_SERIES, GPU_SERIES)
        }

    def catch_up(self) -> None:
        """Take in the points that are new."""
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

    def newest(self, name: str, process: int | None = None) -> float | None:
        """Return the newest value of a series of a process, or of the host."""
        series = self._reader.find_series(name, process)
        point = self._newest.get(series.id) if series else None
        return point.value if point else None

    def mean(self, name: str) -> float | None:
        """Return the mean of a series over the whole run."""
        info = self._reader.info
        return sums_of_means(self._bins[name].columns(Ruler.filling(info.started_ns, info.end_ns, 1)))[0]

    def strips(self, window: Window, ruler: Ruler) -> tuple[Gauge, ...]:
        """Return the gauges of the timeline."""
        return tuple(self._gauge(name, kind, self._columns(name, window, ruler)) for name, kind in STRIPS)

    def _columns(self, name: str, window: Window, ruler: Ruler) -> Sequence[Bin[int]]:
        if window is Window.WHOLE:
            return self._bins[name].columns(ruler)
        bins = TimeBins[int](ruler.from_ns, int(ruler.column_ns))
        for series in self._of_name(name):
            _add(bins, series.id, None, self._reader.points(series.id, ruler.from_ns))
        return bins.columns(ruler)

    def _gauge(self, name: str, kind: str, columns: Sequence[Bin[int]]) -> Gauge:
        cells = means_of_means(columns) if name == GPU_SERIES else sums_of_means(columns)
        if self._reader.info.state == "live":
            return Gauge(name, cells, self._newest_of_all(name), "now")
        seen = [cell for cell in cells if cell is not None]
        if not seen:
            return Gauge(name, cells, None, kind)
        return Gauge(name, cells, max(seen) if kind == "peak" else sum(seen) / len(seen), kind)

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
