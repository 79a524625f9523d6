"""When the conditions of selections held: a GPU idle, CPU saturated, at a limit, memory growing."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from functools import reduce

from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.memory import growth
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.analyze.series import cpu_series
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.store import stepfunction
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import SeriesRow
from profd.daemon.store.stepfunction import IntervalSet, StepFunction
from profd.daemon.timerange import EVER, TimeRange

SATURATED_ABOVE = 0.95


def cpu_saturated(reader: RunReader, time: TimeRange = EVER) -> IntervalSet:
    return _host_track(reader, "host_cpu_share", time).where(lambda value: value >= SATURATED_ABOVE)


def throttled(reader: RunReader, process: int, time: TimeRange = EVER) -> IntervalSet:
    """Return when the control group was out of CPU time, or heat or power slowed its GPUs."""
    tracks = [_host_track(reader, "cgroup_cpu_throttled_share", time)]
    gpus = GpuTracks(reader, name="gpu_throttle_reasons_mask")
    tracks += [reader.steps(gpus.series[device], time) for device in gpus.used_by(process)]
    slow = (track.where(lambda value: value > 0) for track in tracks)
    return IntervalSet(time for held in slow for time in held.ranges())


def memory_growing(reader: RunReader, process: int) -> IntervalSet:
    own = growth(reader, Selection(processes=frozenset({process})))
    return IntervalSet(
        (one.since_ns, reader.info.end_ns)
        for one in own
        if one.verdict == "growing" and one.since_ns is not None
    )


def covers_of(
    reader: RunReader,
    conditions: tuple[Condition, ...],
    threads: Collection[int],
    time: TimeRange = EVER,
) -> dict[int, IntervalSet]:
    """Return by thread when all conditions held for it or its process, in ``time``.

    Nothing without conditions.
    """
    if not conditions:
        return {}
    tracks = GpuTracks(reader, time, longest_ns=0)
    used = cpu_series(reader, [reader.threads[thread] for thread in threads])

    @functools.cache
    def held(condition: Condition, process: int) -> IntervalSet:
        if condition.name == "gpu-idle":  # by the mean utilization of its GPUs
            return stepfunction.idle_time(tracks.of_process(process), condition.limit)
        if condition.name == "cpu-saturated":
            return cpu_saturated(reader, time)
        if condition.name == "throttled":
            return throttled(reader, process, time)
        return memory_growing(reader, process)

    def held_for(condition: Condition, thread: int) -> IntervalSet:
        if condition.name != "on-cpu":
            return held(condition, reader.threads[thread].process)
        track = reader.steps(used[thread], time) if thread in used else StepFunction([], None)
        return stepfunction.on_cpu_time(track)

    return {
        thread: reduce(stepfunction.common, (held_for(one, thread) for one in conditions))
        for thread in threads
    }


CONDITIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "gpu-idle": (
        (stepfunction.UTILIZATION,),
        "it has no readings of a GPU's utilization; `profd doctor` says whether GPUs can "
        "be read here",
    ),
    "cpu-saturated": (("host_cpu_share",), "it has no readings of the host's CPU"),
    "throttled": (
        ("cgroup_cpu_throttled_share", "gpu_throttle_reasons_mask"),
        "it has no readings of a limit on CPU time or of a GPU's clocks",
    ),
    "memory-growing": (("rss_bytes",), "it has no readings of memory"),
    "on-cpu": ((stepfunction.THREAD_CPU,), "it has no readings of the CPU time of threads"),
}
"""The series that each condition rests on, and what is missing if a run has none of them."""


def check(reader: RunReader, conditions: tuple[Condition, ...], time: TimeRange) -> None:
    """Raise UsageError if it is unknown whether a condition held in a run, or in a short range."""
    length_ns = time.within(reader.info.time).length_ns
    for condition in conditions:
        if condition.name == "gpu-idle":
            period_ns = GpuTracks(reader).period_ns
        else:
            tracks = [reader.steps(series.id) for series in _series_of(reader, condition.name)]
            # That of the track with the longest distance of readings.
            period_ns = max((track.period_ns or 0 for track in tracks), default=0) or None
        if period_ns is None:
            raise UsageError(f"the run cannot tell {condition.name}", CONDITIONS[condition.name][1])
        if length_ns < period_ns:
            period_ms, length_ms = period_ns // MILLISECOND_NS, length_ns // MILLISECOND_NS
            what = (
                f"{condition.name} was read every {period_ms} ms, which says nothing of "
                f"{length_ms} ms"
            )
            raise UsageError(what, "take a longer range of time")


def can_tell(reader: RunReader, name: str) -> bool:
    """Say whether a run has any of the readings that a condition rests on."""
    return any(reader.last_point(series.id) is not None for series in _series_of(reader, name))


def _series_of(reader: RunReader, name: str) -> list[SeriesRow]:
    return [
        series
        for series in reader.list_series(*CONDITIONS[name][0])
        if (series.os_tid is not None) == (name == "on-cpu")
    ]


def _host_track(reader: RunReader, name: str, time: TimeRange) -> StepFunction:
    series = reader.find_series(name)
    return reader.steps(series.id, time) if series else StepFunction([], None)
