"""The readings of a run as its page carries them: CPU, memory and steps of processes, utilization and memory of GPUs.

Every series is thinned to about as many points as a screen has columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from profd.daemon.analyze.coverage import Lives
from profd.daemon.analyze.gputracks import UTILIZATION
from profd.daemon.analyze.memory import GPU_SERIES, Growth
from profd.daemon.analyze.series import take_course
from profd.daemon.analyze.steps import COUNT_SERIES
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.render.entries import CoverColumns, GpuEntry, MemoryEntry, ProcessEntry, Series
from profd.daemon.render.plaintext import process_title, visible
from profd.daemon.render.sections import growth_words
from profd.daemon.store.intervals import IntervalSet
from profd.daemon.store.merge import hosts_of, nodes_of
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, SeriesRow
from profd.daemon.store.stepfunction import Step, StepFunction

POINT_LIMIT = 1_200
"""Points kept of one series: about as many as a wide screen has columns."""
LEAST_MINUTES = 300
"""Of a run of so many minutes the mean of each minute is enough."""
CHARTED_PROCESSES = 64
"""Series are kept of the first so many processes: a job that starts thousands would fill the page with them."""
_DIGITS = {
    "cpu_cores": 5,
    "rss_bytes": -4,
    "pss_bytes": -4,
    UTILIZATION: 3,
    "gpu_memory_used_bytes": -5,
    GPU_SERIES: -5,
    COUNT_SERIES: 4,
}
"""Decimal places that are worth their bytes."""
_MOST = 1e15


def process_entries(
    reader: RunReader, index: dict[int, int], lives: Lives, memory: Iterable[Growth]
) -> list[ProcessEntry]:
    """Return the processes with their readings; ``index`` has the place of each, ``memory`` how theirs goes on."""
    started_ns = reader.info.started_ns
    charted = set(list(index)[:CHARTED_PROCESSES])
    kinds, hosts = _by_process(memory), hosts_of(reader) if nodes_of(reader) else {}
    return [
        ProcessEntry(
            title=process_title(row, hosts.get(row.id)),
            role=row.role,
            rank=row.rank,
            pid=row.pid,
            parent=index.get(row.parent) if row.parent is not None else None,
            command=visible(" ".join(row.command)),
            seen_ms=(row.seen_ns - started_ns) // MILLISECOND_NS,
            ended_ms=None if row.ended_ns is None else (row.ended_ns - started_ns) // MILLISECOND_NS,
            exit_code=row.exit_code,
            exit_signal=row.exit_signal,
            cover=_cover(lives.cover(row.id), started_ns),
            cpu_cores=_series_of_process(reader, "cpu_cores", row.id, charted),
            rss_bytes=_series_of_process(reader, "rss_bytes", row.id, charted),
            steps_per_s=_steps_per_s(reader, row.id),
            memory=[_memory_entry(reader, kind) for kind in kinds[row.id]] if row.id in charted else [],
        )
        for row in reader.processes.values()
    ]


def _cover(cover: IntervalSet, started_ns: int) -> CoverColumns:
    edges = cover.edges()
    together = -(-len(edges) // POINT_LIMIT)
    if together > 1:
        edges = [*edges[:-1:together], edges[-1]]
    times_ms = [(at_ns - started_ns) // MILLISECOND_NS for at_ns, _ in edges]
    covered_ms = [covered_ns // MILLISECOND_NS for _, covered_ns in edges]
    return CoverColumns(_distances(times_ms), _distances(covered_ms))


def _distances(values: list[int]) -> list[int]:
    """Return the distance of each value to the one before, of the first to 0."""
    return [value - before for value, before in zip(values, [0, *values], strict=False)]


def gpu_entries(reader: RunReader) -> list[GpuEntry]:
    """Return the GPUs that have readings, with these."""
    devices = sorted({row.device for row in reader.series.values() if row.name == UTILIZATION and row.device})
    return [
        GpuEntry(
            title=f"GPU {visible(device).removeprefix('gpu')}",
            utilization=_series(reader, reader.find_series(UTILIZATION, device=device)),
            memory_bytes=_series(reader, reader.find_series("gpu_memory_used_bytes", device=device)),
        )
        for device in devices
    ]


def _series_of_process(reader: RunReader, name: str, process: int, charted: set[int]) -> Series:
    return _series(reader, reader.find_series(name, process) if process in charted else None)


def _series(reader: RunReader, found: SeriesRow | None) -> Series:
    steps = list(take_course(reader, found.id, None, None, LEAST_MINUTES).steps()) if found else []
    return _columns_of(reader, _thin(steps), _DIGITS[found.name] if found else 0)


def _columns_of(reader: RunReader, steps: list[Step], digits: int) -> Series:
    begins_ms, ends_ms = (
        [(at_ns - reader.info.started_ns) // MILLISECOND_NS for at_ns in times_ns]
        for times_ns in ((step.start_ns for step in steps), (step.end_ns for step in steps))
    )
    gaps_ms = [begin_ms - end_ms for begin_ms, end_ms in zip(begins_ms, [0, *ends_ms], strict=False)]
    places = [place for place, gap_ms in enumerate(gaps_ms) if gap_ms]
    scale = 10.0**digits
    return Series(
        steps_ms=_distances(ends_ms),
        values=[_whole(step.value * scale) for step in steps],
        digits=digits,
        gap_steps=_distances(places),
        gaps_ms=[gaps_ms[place] for place in places],
    )


def _whole(value: float) -> int:
    """Return the nearest whole number; 0 for what no reading can be, and only a damaged file says."""
    return round(value) if -_MOST < value < _MOST else 0


def _thin(steps: list[Step]) -> list[Step]:
    """Return at most ``POINT_LIMIT`` steps, each the mean of as many neighbors, known for as long as all of them."""
    together = -(-len(steps) // POINT_LIMIT)
    return [_one(steps[at : at + together]) for at in range(0, len(steps), together)] if together > 1 else steps


def _one(steps: list[Step]) -> Step:
    total = StepFunction(steps, None).over(steps[0].start_ns, steps[-1].end_ns)
    return Step(steps[-1].end_ns - total.known_ns, steps[-1].end_ns, total.mean or 0.0)


def _by_process(memory: Iterable[Growth]) -> dict[int, list[Growth]]:
    """Return by process the kinds of memory that were read of it, with how each goes on."""
    found: defaultdict[int, list[Growth]] = defaultdict(list)
    for one in memory:
        if one.series != "pss_bytes":  # what is proportional is resident too, and read seldom
            found[one.process].append(one)
    return found


def _memory_entry(reader: RunReader, kind: Growth) -> MemoryEntry:
    series = reader.find_series(kind.series, kind.process, kind.device)
    title = "RSS" if kind.device is None else f"on GPU {visible(kind.device).removeprefix('gpu')}"
    return MemoryEntry(title, _series(reader, series), growth_words(kind))


def _steps_per_s(reader: RunReader, process: int) -> Series:
    """Return the pace between each two readings of the loop counter; a counter that starts again tells of none."""
    found = reader.find_series(COUNT_SERIES, process)
    counts = reader.points(found.id) if found else []
    return _columns_of(reader, _thin(list(_paces(counts))), _DIGITS[COUNT_SERIES])


def _paces(counts: list[PointRow]) -> Iterator[Step]:
    for before, after in pairwise(counts):
        if after.at_ns > before.at_ns and after.value >= before.value:
            pace = (after.value - before.value) * SECOND_NS / (after.at_ns - before.at_ns)
            yield Step(before.at_ns, after.at_ns, pace)
