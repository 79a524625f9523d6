"""When the conditions of selections held: a GPU was idle, or a thread ran on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.selection import Condition
from profd.daemon.analyze.series import of_threads
from profd.daemon.clock import MILLISECOND_NS, MINUTE_NS
from profd.daemon.errors import UsageError
from profd.daemon.store import stepfunction
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import SeriesRow
from profd.daemon.store.stepfunction import THREAD_CPU, IntervalSet, StepFunction
from profd.daemon.timerange import EVER, TimeRange


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
    used = of_threads(reader, [reader.threads[thread] for thread in threads], THREAD_CPU)

    @functools.cache
    def idle(process: int, limit: float) -> IntervalSet:
        """Return when a process's GPUs were idle by their mean utilization."""
        return stepfunction.idle_time(tracks.of_process(process), limit)

    def held(condition: Condition, thread: int) -> IntervalSet:
        if condition.name == "gpu-idle":
            return idle(reader.threads[thread].process, condition.limit)
        track = reader.steps(used[thread], time) if thread in used else StepFunction([], None)
        return stepfunction.on_cpu_time(track)

    return {
        thread: functools.reduce(stepfunction.common, (held(one, thread) for one in conditions))
        for thread in threads
    }


CONDITIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "gpu-idle": (
        (stepfunction.UTILIZATION,),
        "it has no readings of a GPU's utilization; `profd doctor` says whether GPUs can "
        "be read here",
    ),
    "on-cpu": ((stepfunction.THREAD_CPU,), "it has no readings of the CPU time of threads"),
}
"""The series that each condition rests on, and what is missing if a run has none of them."""


def check(reader: RunReader, conditions: tuple[Condition, ...], time: TimeRange) -> None:
    """Raise UsageError if it is unknown whether a condition held in a run, or in a short range.

    What is read at all is read each minute: a longer range asks for no distances.
    """
    length_ns = time.within(reader.info.time).length_ns
    for condition in conditions:
        if length_ns > MINUTE_NS and can_tell(reader, condition.name):
            continue
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
