"""When something held that a selection can ask for: a GPU idle, the CPU saturated, a limit reached, memory growing.

Each condition is a name and one function from a run and a process, or a thread, to a cover of time. Nothing here knows
of stacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import NamedTuple

from profd.daemon.analyze.gputracks import UTILIZATION, GpuTracks
from profd.daemon.analyze.memory import growth
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.store.intervals import IntervalSet, common, united
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import SeriesRow
from profd.daemon.store.stepfunction import LONGEST_INTERVAL_NS, THREAD_CPU, StepFunction, idle_time, on_cpu_time

SATURATED_ABOVE = 0.95


class Within(NamedTuple):
    """The range of time that is asked for: in a long run little has to be read for it; None: not bounded."""

    from_ns: int | None = None
    to_ns: int | None = None


WHOLE = Within()


def within(from_ns: int | None, to_ns: int | None) -> Within:
    """Return the time of the intervals that start in a range, their ends included."""
    return Within(from_ns, None if to_ns is None else to_ns + LONGEST_INTERVAL_NS)


def gpu_idle(reader: RunReader, process: int, limit: float, time: Within = WHOLE) -> IntervalSet:
    """Return when the GPUs of a process were utilized below ``limit``, on average over several."""
    return idle_time(GpuTracks(reader, *time, longest_ns=0).of_process(process), limit)


def cpu_saturated(reader: RunReader, process: int, _: float, time: Within = WHOLE) -> IntervalSet:
    """Return when all cores of the host were busy."""
    return _host_track(reader, "host_cpu_share", time).where(lambda value: value >= SATURATED_ABOVE)


def throttled(reader: RunReader, process: int, _: float, time: Within = WHOLE) -> IntervalSet:
    """Return when the control group had used up its CPU time, or a GPU of the process ran slower for heat or power."""
    tracks = [_host_track(reader, "cgroup_cpu_throttled_share", time)]
    for device in GpuTracks(reader).used_by(process):
        series = reader.find_series("gpu_throttled_share", device=device)
        tracks += [reader.steps(series.id, *time)] if series else []
    return reduce(united, (track.where(lambda value: value > 0) for track in tracks))


def memory_growing(reader: RunReader, process: int, _: float, time: Within = WHOLE) -> IntervalSet:
    """Return when the memory of a process grew, on the host or a GPU, from where its growth can be told on."""
    cover = IntervalSet()
    own = [one for one in growth(reader, Selection(processes=frozenset({process}))) if one.verdict == "growing"]
    for since_ns in sorted(one.since_ns for one in own if one.since_ns is not None):
        cover.add(since_ns, reader.info.end_ns)
    return cover


def on_cpu(reader: RunReader, thread: int, _: float, time: Within = WHOLE) -> IntervalSet:
    """Return when a thread ran more than it waited."""
    row = reader.threads[thread]
    for series in reader.series.values():
        if (series.name, series.process, series.os_tid) == (THREAD_CPU, row.process, row.os_tid):
            return on_cpu_time(reader.steps(series.id, *time))
    return IntervalSet()


Test = Callable[[RunReader, int, float, Within], IntervalSet]
CONDITIONS: Mapping[str, Test] = {
    "gpu-idle": gpu_idle,
    "cpu-saturated": cpu_saturated,
    "throttled": throttled,
    "memory-growing": memory_growing,
}
OF_THREADS: Mapping[str, Test] = {"on-cpu": on_cpu}
"""Conditions that threads of one process meet at different times."""


def covers_of(
    reader: RunReader, conditions: tuple[Condition, ...], threads: Iterable[int], time: Within = WHOLE
) -> dict[int, IntervalSet]:
    """Return by thread when all of some conditions held for it or its process; nothing where there are none.

    What is told of other times than ``time`` is not complete.
    """
    if not conditions:
        return {}
    of_process = [one for one in conditions if one.name in CONDITIONS]
    of_thread = [one for one in conditions if one.name in OF_THREADS]
    processes = {thread: reader.threads[thread].process for thread in threads}
    known = _with_tracks(reader, of_process, time)
    held = {
        process: [known[one.name](reader, process, one.limit, time) for one in of_process]
        for process in set(processes.values())
    }
    return {
        thread: reduce(
            common, [*held[process], *(OF_THREADS[one.name](reader, thread, one.limit, time) for one in of_thread)]
        )
        for thread, process in processes.items()
    }


def _with_tracks(reader: RunReader, conditions: Iterable[Condition], time: Within) -> Mapping[str, Test]:
    """Return the conditions, the GPUs' readings shared by all processes where they are asked for."""
    if not any(one.name == "gpu-idle" for one in conditions):
        return CONDITIONS
    tracks = GpuTracks(reader, *time, longest_ns=0)

    def shared(reader: RunReader, process: int, limit: float, time: Within) -> IntervalSet:
        return idle_time(tracks.of_process(process), limit)

    return {**CONDITIONS, "gpu-idle": shared}


def check(reader: RunReader, conditions: tuple[Condition, ...], from_ns: int | None, to_ns: int | None) -> None:
    """Raise UsageError where a run cannot tell whether a condition held, or not within so short a range."""
    info = reader.info
    length_ns = (to_ns or info.end_ns) - (from_ns or info.started_ns)
    for condition in conditions:
        track = _deciding_track(reader, condition.name)
        if track.period_ns is None:
            raise UsageError(f"the run cannot tell {condition.name}", _WHY_UNKNOWN[condition.name])
        if length_ns < track.period_ns:
            raise UsageError(
                f"{condition.name} was read every {track.period_ns // MILLISECOND_NS} ms, which says nothing of "
                f"{length_ns // MILLISECOND_NS} ms",
                "take a longer range of time",
            )


def can_tell(reader: RunReader, name: str) -> bool:
    """Say whether a run has any of the readings that a condition rests on."""
    return any(reader.last_point(series.id) is not None for series in _deciding_series(reader, name))


_WHY_UNKNOWN = {
    "gpu-idle": "it has no readings of a GPU's utilization; `profd doctor` says whether GPUs can be read here",
    "on-cpu": "it has no readings of the CPU time of threads",
    "cpu-saturated": "it has no readings of the host's CPU",
    "throttled": "it has no readings of a limit on CPU time or of a GPU's clocks",
    "memory-growing": "it has no readings of memory",
}


_DECIDING = {
    "gpu-idle": (UTILIZATION,),
    "on-cpu": (THREAD_CPU,),
    "cpu-saturated": ("host_cpu_share",),
    "throttled": ("cgroup_cpu_throttled_share", "gpu_throttled_share"),
    "memory-growing": ("rss_bytes",),
}


def _deciding_track(reader: RunReader, name: str) -> StepFunction:
    """Return the track with the longest period among those that a condition rests on."""
    if name == "gpu-idle":
        return StepFunction([], GpuTracks(reader).period_ns)
    tracks = [reader.steps(series.id) for series in _deciding_series(reader, name)]
    return max(tracks, key=lambda track: track.period_ns or 0, default=StepFunction([], None))


def _deciding_series(reader: RunReader, name: str) -> list[SeriesRow]:
    """Return the series that a condition rests on."""
    of_thread = name in OF_THREADS
    return [
        series
        for series in reader.series.values()
        if series.name in _DECIDING[name] and (series.os_tid is not None) == of_thread
    ]


def _host_track(reader: RunReader, name: str, time: Within) -> StepFunction:
    series = reader.find_series(name)
    return reader.steps(series.id, *time) if series else StepFunction([], None)
