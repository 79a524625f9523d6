"""The GPUs of a run: how busy and full they were, and what Python did while they were idle."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from profd.daemon.analyze.gputracks import GpuTracks, total_utilization
from profd.daemon.analyze.idletime import IdleShare, IdleTime, Queue, State
from profd.daemon.analyze.phases import (
    DATA_LOAD,
    DATA_WAIT,
    LOGGING,
    SYNCHRONIZE,
    PhaseIndex,
    PhasePlace,
)
from profd.daemon.analyze.selection import Selection, spread
from profd.daemon.analyze.series import total_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.stepfunction import UTILIZATION, StepFunction


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that the run used, or a MIG instance of one.

    ``index`` is the number that nvidia-smi gives the GPU, ``device`` the name of its series.
    ``utilization`` and ``power_watts`` are means, ``memory_used_bytes`` is the most that all
    processes together used, ``energy_joules`` what it took while that was read; None if it was not.
    """

    index: int
    name: str
    device: str
    uuid: str
    memory_bytes: int | None
    utilization: float | None
    memory_used_bytes: int | None
    power_watts: float | None
    energy_joules: float | None


def take_gpus(reader: RunReader, selection: Selection) -> tuple[Gpu, ...]:
    """Return the GPUs with what they did in a selection's range of time."""
    found = []
    for row in reader.devices():
        used, busy, power = (
            total_of_series(reader, name, None, selection, row.name)
            for name in ("gpu_memory_used_bytes", UTILIZATION, "gpu_power_watts")
        )
        most_bytes = int(used.most) if used.is_known else None
        energy_joules = power.integral / SECOND_NS if power.known_ns else None
        about = row.index, row.model, row.name, row.uuid, row.memory_bytes
        found.append(Gpu(*about, busy.mean, most_bytes, power.mean, energy_joules))
    return tuple(found)


LINES = 10


class IdleLine(PhasePlace, frozen=True):
    """A line in a phase, with the share of the idle time that may lie at it or below."""

    idle: IdleShare


class GpuIdle(msgspec.Struct, frozen=True):
    """How long the GPUs of training processes were idle, and what their threads did then.

    ``share`` is their share of the GPUs' known time, which is ``known_s`` in all. ``phases`` and
    ``lines`` have the shares of the idle time, those that may have most first, by readings
    ``period_s`` apart: only windows resolve shorter gaps.
    """

    share: float
    known_s: float
    period_s: float
    phases: dict[str, IdleShare]
    lines: tuple[IdleLine, ...]


def take_gpu_idle(reader: RunReader, selection: Selection, phases: PhaseIndex) -> GpuIdle | None:
    """Return how idle the GPUs of a selection's processes were; None if none was read then."""
    trainers = [row.id for row in selection.trainers(reader)]
    total = total_utilization(reader, trainers, selection.time)
    if total.mean is None or not total.known_ns:
        return None
    parts = _read(reader, selection)
    queue_of = _queues(phases)
    place_of = functools.cache(lambda stack: (phases.of_stack(stack), phases.user_line(stack)))
    by_line = _idle_time(parts, place_of, queue_of).shares()
    by_phase = _idle_time(parts, phases.of_stack, queue_of).shares()
    whole = selection.time_in(reader)
    period_ns = GpuTracks(reader, whole).period_ns or 0
    lines = [
        IdleLine(phase, *row.place, idle)
        for (phase, row), idle in by_line.items()
        if row is not None and selection.phase in {None, phase}
    ]
    found = {name: idle for name, idle in by_phase.items() if selection.phase in {None, name}}
    return GpuIdle(
        1 - total.mean,
        total.known_ns / SECOND_NS,
        period_ns / SECOND_NS,
        found,
        tuple(lines[:LINES]),
    )


def idle_bounds(
    reader: RunReader, selection: Selection, phases: PhaseIndex
) -> dict[str, IdleShare]:
    """Return only the bounds of each phase's share of the idle time: a live run asks often."""
    parts = _read(reader, selection)
    return _idle_time(parts, phases.of_stack, lambda stack: None).bounds()


# These copy what may be large, and no kernel runs while they do.
_COPIES = re.compile(r"\.(cpu|numpy|tolist|to)\(")
_STARTS_NOTHING = frozenset({DATA_WAIT, DATA_LOAD, LOGGING})


def _queues(phases: PhaseIndex) -> Callable[[int], Queue | None]:
    """Return what a stack tells of the GPU's queue."""

    @functools.cache
    def queue_of(stack: int) -> Queue | None:
        phase, line = phases.of_stack(stack), phases.user_line(stack)
        if phase in _STARTS_NOTHING:
            return Queue.STAYS
        is_wait = (
            phase == SYNCHRONIZE and line is not None and not _COPIES.search(line.text or ".to(")
        )
        return Queue.RUNS_DRY if is_wait else None

    return queue_of


# A longer range is read in slices: so much time for all processes together, and at least so much
# for each. An estimate of a loop needs a minute. A slice has many readings, because its first and
# its last one are not whole.
_LOOKED_AT_NS, _LEAST_LOOKED_AT_NS, _SLICE_NS = 240 * SECOND_NS, 20 * SECOND_NS, 10 * SECOND_NS


Part = tuple[StepFunction, Sequence[IntervalRow]]
"""How busy the GPUs of a process were, and the intervals of its main thread then."""


def _read(reader: RunReader, selection: Selection) -> list[Part]:
    whole = selection.time_in(reader)
    trainers = {row.id for row in selection.trainers(reader)}
    mains = [row for row in reader.main_threads() if row.process in trainers]
    most_ns = max(_LOOKED_AT_NS // max(len(trainers), 1), _LEAST_LOOKED_AT_NS)
    parts: list[Part] = []
    for time in spread(whole, most_ns, most_ns // _SLICE_NS):
        tracks = GpuTracks(reader, time)
        for thread in mains:
            rows = list(reader.intervals(time, {thread.id}))
            parts.append((tracks.of_process(thread.process), rows))
    return parts


def _idle_time(
    parts: Iterable[Part],
    state_of: Callable[[int], State],
    queue_of: Callable[[int], Queue | None],
) -> IdleTime[State]:
    time = IdleTime[State]()
    for track, rows in parts:
        time.add(track, rows, state_of, queue_of)
    return time
