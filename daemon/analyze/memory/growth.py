"""Which processes of a run grow in memory, how fast, and how long that can go on.

What growth is stands in ``trend``; here it is asked of the series of a run file. Nothing here knows how it is shown.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary

import msgspec

from profd.daemon.analyze.course import take_course
from profd.daemon.analyze.memory.headroom import GPU_SERIES, Limit, tightest
from profd.daemon.analyze.memory.trend import LEAST_SPAN_S, Trend, trend
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps.steps import COUNT_SERIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, ProcessRow, SeriesRow

SERIES = ("rss_bytes", "pss_bytes", GPU_SERIES)
FILE_SERIES = "rss_file_bytes"

# Less is what allocators keep for themselves.
LEAST_GROWTH_BYTES = 4e6
LEAST_GROWTH_SHARE = 0.0025
MOST_OF_FILES = 0.5
# Longer than it takes to give back what was in use.
ENDING_NS = 10 * SECOND_NS
EVERYTHING = Selection()
LEAST_MINUTES = 240
"""Of so many minutes the least and the highest value are all that is looked at."""


class Growth(msgspec.Struct, frozen=True):
    """How the memory of a process went, by one series.

    ``process`` is the id of its row. ``verdict`` is ``growing``; ``steady``; ``cached`` where it grows by pages of
    files, which the kernel takes back when it needs them; ``unknown`` where too little is known, and then there is no
    slope. The slope has a 95 % interval and holds since ``since_ns``. ``bytes_per_step`` is there where steps are
    counted. ``limit`` is what ends the growth first, after ``time_to_limit_s`` if all that grow towards it go on so.
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
    """Return how the memory of each process of a selection went in its range of time, by each series.

    The last answer is kept: rules and summaries ask for the same, and of a long run it takes seconds.
    """
    asked = (selection.from_ns, selection.to_ns, selection.processes, selection.rank, reader.info.end_ns)
    kept = _LAST.get(reader)
    if kept is None or kept[0] != asked:
        kept = _LAST[reader] = (asked, _growths(reader, selection))
    return kept[1]


_LAST: WeakKeyDictionary[RunReader, tuple[tuple[object, ...], tuple[Growth, ...]]] = WeakKeyDictionary()


def _growths(reader: RunReader, selection: Selection) -> tuple[Growth, ...]:
    found = [
        _growth(reader, reader.processes[row.process], row, selection)
        for row in sorted(reader.series.values(), key=lambda row: (row.process or 0, row.name, row.device or ""))
        if row.name in SERIES and row.process in reader.processes and row.os_tid is None
        if selection.takes_process(reader.processes[row.process])
    ]
    return tuple(_with_times(found))


def _growth(reader: RunReader, process: ProcessRow, row: SeriesRow, selection: Selection) -> Growth:
    course = take_course(reader, row.id, selection.from_ns, selection.to_ns, LEAST_MINUTES)
    points = _before_its_end(course.extremes(reader.info.started_ns), process)
    unknown = Growth(process.id, process.pid, row.name, row.device, "unknown")
    if not points:
        return unknown
    counts = _points(reader, COUNT_SERIES, process.id, selection)
    found = _by_time(points)
    if found is None:
        return unknown
    if not found.is_growing:
        found = _by_steps(points, counts) or found
    verdict = "growing" if found.is_growing else "steady"
    if verdict == "growing" and row.name != GPU_SERIES and _is_of_files(reader, process, found, selection):
        verdict = "cached"
    return msgspec.structs.replace(
        unknown,
        verdict=verdict,
        slope_bytes_per_s=found.slope_per_s,
        interval_bytes_per_s=(found.low_per_s, found.high_per_s),
        bytes_per_step=_per_step(found, counts),
        since_ns=round(found.start_s * SECOND_NS),
        limit=tightest(reader, row, selection),
    )


def _before_its_end(points: Sequence[PointRow], process: ProcessRow) -> Sequence[PointRow]:
    """Leave out the readings that fell as a process ended: it gave everything back, whatever had grown."""
    first = len(points)
    if process.ended_ns is not None:
        while first > 1 and points[first - 1].at_ns > process.ended_ns - ENDING_NS:
            if points[first - 1].value >= points[first - 2].value:
                break
            first -= 1
    return points[:first]


def _by_time(points: Sequence[PointRow]) -> Trend | None:
    return _trend([point.at_ns / SECOND_NS for point in points], [point.value for point in points])


def _by_steps(points: Sequence[PointRow], counts: Sequence[PointRow]) -> Trend | None:
    """Return the growth of a series for whose steps no even time was taken; None where there is none.

    Its axis are seconds as they would be had all steps taken as long; who leaks at each step grows evenly by it.
    """
    if len(counts) < 2 or counts[-1].value <= counts[0].value:
        return None
    took_s = (counts[-1].at_ns - counts[0].at_ns) / SECOND_NS
    step_s = took_s / (counts[-1].value - counts[0].value)
    inside = [point for point in points if counts[0].at_ns <= point.at_ns <= counts[-1].at_ns]
    even_s = [(steps - counts[0].value) * step_s for steps in _interpolate(counts, inside)]
    found = _trend(even_s, [point.value for point in inside])
    if found is None or not found.is_growing:
        return None
    start_s = inside[bisect.bisect_left(even_s, found.start_s)].at_ns / SECOND_NS
    end_s = inside[-1].at_ns / SECOND_NS
    stretch = (found.end_s - found.start_s) / (end_s - start_s)
    return msgspec.structs.replace(
        found,
        start_s=start_s,
        end_s=end_s,
        slope_per_s=found.slope_per_s * stretch,
        low_per_s=found.low_per_s * stretch,
        high_per_s=found.high_per_s * stretch,
    )


def _interpolate(counts: Sequence[PointRow], points: Sequence[PointRow]) -> Iterator[float]:
    """Yield the step count at the time of each point, all of them between the first and the last count."""
    times_ns = [count.at_ns for count in counts]
    for point in points:
        after = min(max(bisect.bisect_right(times_ns, point.at_ns), 1), len(counts) - 1)
        low, high = counts[after - 1], counts[after]
        share = (point.at_ns - low.at_ns) / max(high.at_ns - low.at_ns, 1)
        yield low.value + share * (high.value - low.value)


def _trend(times_s: Sequence[float], values: Sequence[float]) -> Trend | None:
    if not values:
        return None
    return trend(times_s, values, least_growth=max(LEAST_GROWTH_BYTES, LEAST_GROWTH_SHARE * max(values)))


def _per_step(found: Trend, counts: Sequence[PointRow]) -> float | None:
    """Return by how much a series grew a step, where steps were counted for most of the time in question."""
    inside = [count for count in counts if found.start_s <= count.at_ns / SECOND_NS <= found.end_s]
    if len(inside) < 2 or inside[-1].value <= inside[0].value:
        return None
    took_s = (inside[-1].at_ns - inside[0].at_ns) / SECOND_NS
    if took_s < min(0.5 * (found.end_s - found.start_s), LEAST_SPAN_S):
        return None
    return found.slope_per_s * took_s / (inside[-1].value - inside[0].value)


def _is_of_files(reader: RunReader, process: ProcessRow, found: Trend, selection: Selection) -> bool:
    """Say whether the growth is that of files which the process maps."""
    points = _points(reader, FILE_SERIES, process.id, selection)
    inside = [point.value for point in points if found.start_s <= point.at_ns / SECOND_NS <= found.end_s]
    return len(inside) >= 2 and inside[-1] - inside[0] > MOST_OF_FILES * found.grew


def _points(reader: RunReader, name: str, process: int, selection: Selection) -> list[PointRow]:
    row = reader.find_series(name, process)
    return reader.points(row.id, selection.from_ns, selection.to_ns) if row else []


def _with_times(found: Iterable[Growth]) -> Iterator[Growth]:
    """Yield each with the time that is left, all that grow towards the same limit together."""
    every = list(found)
    slopes: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for one in every:
        if one.verdict == "growing" and one.limit and one.slope_bytes_per_s:
            slopes[one.series, one.limit.kind, one.limit.name] += one.slope_bytes_per_s
    for one in every:
        if one.verdict == "growing" and one.limit:
            left_s = one.limit.left_bytes / slopes[one.series, one.limit.kind, one.limit.name]
            yield msgspec.structs.replace(one, time_to_limit_s=left_s)
        else:
            yield one
