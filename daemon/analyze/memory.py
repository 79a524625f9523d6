"""Memory of a run: which processes grow, how long that can go on, and its limits."""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import points_of, take_course
from profd.daemon.analyze.steps import Counts, counts_of
from profd.daemon.analyze.trend import LEAST_SPAN_S, Trend, trend
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, ProcessRow, SeriesRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS
from profd.daemon.timerange import TimeRange


class Limit(msgspec.Struct, frozen=True):
    """What ends growth first: ``kind`` is host, cgroup or gpu.

    ``name`` is the path of the cgroup or the device.
    """

    kind: str
    name: str
    limit_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        return max(self.limit_bytes - self.used_bytes, 0)


def tightest(reader: RunReader, row: SeriesRow, selection: Selection) -> Limit | None:
    """Return the known limit nearest to a series of a process at the end of a selection."""
    limits: list[Limit] = []

    def add(kind: str, name: str, limit_row: SeriesRow | None, used_row: SeriesRow | None) -> None:
        limit, used = _last(reader, limit_row, selection), _last(reader, used_row, selection)
        if limit is not None and used is not None:
            limits.append(Limit(kind, name, int(limit), int(used)))

    if row.name == MEMORY_OF_PROCESS:
        total = reader.find_series("gpu_memory_total_bytes", device=row.device)
        add(
            "gpu",
            row.device or "",
            total,
            reader.find_series("gpu_memory_used_bytes", device=row.device),
        )
    else:
        total = reader.find_series("host_memory_total_bytes")
        add("host", reader.info.host, total, reader.find_series("host_memory_used_bytes"))
        for bound in reader.list_series("cgroup_memory_limit_bytes", processes={row.process}):
            held = reader.find_series("cgroup_memory_working_set_bytes", device=bound.device)
            add("cgroup", bound.device or "", bound, held)
    return min(limits, key=lambda limit: limit.left_bytes, default=None)


def _last(reader: RunReader, row: SeriesRow | None, selection: Selection) -> float | None:
    point = reader.last_point(row.id, selection.time.to_ns) if row else None
    return point.value if point else None


LEAST_GROWTH_BYTES, LEAST_GROWTH_SHARE = 4e6, 0.0025  # less is what allocators keep for themselves
EVERYTHING = Selection()
# With more minutes, only the least and the highest value of each minute count.
LEAST_MINUTES = 60


class Growth(msgspec.Struct, frozen=True):
    """How the memory of a process went, by one series.

    ``process`` is the id of its row. ``verdict`` is ``growing``; ``steady``; ``cached`` if it grows
    by pages of files, which the kernel takes back when it needs them; ``unknown`` if too little is
    known, and then there is no slope. The slope has a 95 % interval and holds since ``since_ns``.
    ``bytes_per_step`` is there if steps are counted. ``limit`` ends the growth first, after
    ``time_to_limit_s`` if all that grow towards it go on so.
    """

    process: int
    pid: int
    series: str
    device: str | None
    verdict: str
    slope_bytes_per_s: float | None = None
    interval_bytes_per_s: tuple[float, float] | None = None
    bytes_per_step: float | None = None
    since_ns: int | None = None
    limit: Limit | None = None
    time_to_limit_s: float | None = None


def growth(reader: RunReader, selection: Selection = EVERYTHING) -> tuple[Growth, ...]:
    """Return how the memory of each process of a selection went in its time, by series."""
    rows = reader.list_series("rss_bytes", "pss_bytes", MEMORY_OF_PROCESS)
    counts_by = functools.cache(partial(counts_of, reader, selection=selection))
    found = [
        _growth(reader, reader.processes[row.process], row, selection, counts_by(row.process))
        for row in sorted(rows, key=lambda row: (row.process or 0, row.name, row.device or ""))
        if row.process is not None and selection.takes_process(reader.processes[row.process])
    ]
    # All that grow towards the same limit use it up together.
    slopes: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for one in found:
        if one.verdict == "growing" and (limit := one.limit):
            slopes[one.series, limit.kind, limit.name] += one.slope_bytes_per_s or 0.0
    return tuple(_with_time_left(one, slopes) for one in found)


def _with_time_left(one: Growth, slopes: Mapping[tuple[str, str, str], float]) -> Growth:
    """Return a growth with the time until its limit, by what all take of it in a second."""
    if one.verdict != "growing" or one.limit is None:
        return one
    slope = slopes[one.series, one.limit.kind, one.limit.name]
    return msgspec.structs.replace(one, time_to_limit_s=one.limit.left_bytes / slope)


def _growth(
    reader: RunReader, process: ProcessRow, row: SeriesRow, selection: Selection, steps: Counts
) -> Growth:
    points = _before_its_end(_readings(reader, row, selection, process.ended_ns), process)
    unknown = Growth(process.id, process.pid, row.name, row.device, "unknown")
    if not points:
        return unknown
    found = memory_trend(
        [point.at_ns / SECOND_NS for point in points], [point.value for point in points]
    )
    if found is None:
        return unknown
    if not found.is_growing:
        found = _by_steps(points, steps.longest) or found
    verdict = "growing" if found.is_growing else "steady"
    if verdict == "growing" and row.name != MEMORY_OF_PROCESS:
        files = points_of(reader, "rss_file_bytes", process.id, selection)
        inside = [
            point.value
            for point in files
            if found.start_s <= point.at_ns / SECOND_NS <= found.end_s
        ]
        if len(inside) >= 2 and inside[-1] - inside[0] > found.grew / 2:
            verdict = "cached"
    return msgspec.structs.replace(
        unknown,
        verdict=verdict,
        slope_bytes_per_s=found.slope_per_s,
        interval_bytes_per_s=(found.low_per_s, found.high_per_s),
        bytes_per_step=_per_step(found, steps.longest),
        since_ns=round(found.start_s * SECOND_NS),
        limit=tightest(reader, row, selection),
    )


def _readings(
    reader: RunReader, row: SeriesRow, selection: Selection, ended_ns: int | None
) -> Sequence[PointRow]:
    """Return the readings of a series, or the extremes of minutes if the time is long.

    The last minute of its process always has its readings.
    """
    time, started_ns = selection.time, reader.info.started_ns
    if ended_ns is None:
        return take_course(reader, row.id, time, LEAST_MINUTES).extremes(started_ns)
    last = TimeRange(ended_ns - MINUTE_NS).within(time)
    before = TimeRange(time.from_ns, last.from_ns).within(time)
    course = take_course(reader, row.id, before, LEAST_MINUTES)
    return [*course.extremes(started_ns), *reader.points(row.id, last)]


def _before_its_end(points: Sequence[PointRow], process: ProcessRow) -> Sequence[PointRow]:
    """Leave out the readings that fell as a process ended and gave everything back."""
    if process.ended_ns is None:
        return points
    late_ns = process.ended_ns - 10 * SECOND_NS  # longer than it takes to give all back
    last = len(points) - 1
    while last > 0 and points[last].at_ns > late_ns and points[last].value < points[last - 1].value:
        last -= 1
    return points[: last + 1]


def _by_steps(points: Sequence[PointRow], counts: Sequence[PointRow]) -> Trend | None:
    """Return the growth of a series by steps of uneven length; None if there is none."""
    # The axis has seconds as if all steps took equally long; a leak at each step is even on it.
    if len(counts) < 2 or counts[-1].value <= counts[0].value:
        return None
    took_s = (counts[-1].at_ns - counts[0].at_ns) / SECOND_NS
    step_s = took_s / (counts[-1].value - counts[0].value)
    inside = [point for point in points if counts[0].at_ns <= point.at_ns <= counts[-1].at_ns]
    even_s = [(_steps_at(counts, point.at_ns) - counts[0].value) * step_s for point in inside]
    found = memory_trend(even_s, [point.value for point in inside])
    if found is None or not found.is_growing:
        return None
    start_s = inside[bisect.bisect_left(even_s, found.start_s)].at_ns / SECOND_NS
    end_s = inside[-1].at_ns / SECOND_NS
    stretch = (found.end_s - found.start_s) / (end_s - start_s)
    slopes = {
        name: getattr(found, name) * stretch for name in ("slope_per_s", "low_per_s", "high_per_s")
    }
    return msgspec.structs.replace(found, start_s=start_s, end_s=end_s, **slopes)


def _steps_at(counts: Sequence[PointRow], at_ns: int) -> float:
    after = min(
        max(bisect.bisect_right(counts, at_ns, key=lambda count: count.at_ns), 1), len(counts) - 1
    )
    low, high = counts[after - 1], counts[after]
    share = (at_ns - low.at_ns) / max(high.at_ns - low.at_ns, 1)
    return low.value + share * (high.value - low.value)


def memory_trend(times_s: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Return how memory goes on, see ``trend``: less growth than matters is none."""
    least_growth = max(LEAST_GROWTH_BYTES, LEAST_GROWTH_SHARE * max(values, default=0.0))
    return trend(times_s, values, least_growth=least_growth)


def _per_step(found: Trend, counts: Sequence[PointRow]) -> float | None:
    inside = [count for count in counts if found.start_s <= count.at_ns / SECOND_NS <= found.end_s]
    if len(inside) < 2 or inside[-1].value <= inside[0].value:
        return None
    took_s = (inside[-1].at_ns - inside[0].at_ns) / SECOND_NS
    if took_s < min(0.5 * (found.end_s - found.start_s), LEAST_SPAN_S):
        return None
    return found.slope_per_s * took_s / (inside[-1].value - inside[0].value)
