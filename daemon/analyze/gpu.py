"""The GPUs of a run: how busy and full they were, and what Python did while they were idle."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from profd.daemon.analyze.gputracks import GRAPHICS_ACTIVE, GpuTracks, total_utilization
from profd.daemon.analyze.idletime import IdleShare, IdleTime, Queue
from profd.daemon.analyze.phases import DATA_LOAD, DATA_WAIT, LOGGING, SYNCHRONIZE, PhaseIndex, PhasePlace
from profd.daemon.analyze.selection import Selection, spread
from profd.daemon.analyze.series import mean_of_series, total_of_series
from profd.daemon.analyze.uncertainty import LOOKED_AT_NS
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow
from profd.daemon.store.stepfunction import UTILIZATION


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that the run used, or a MIG instance of one.

    ``index`` is the number that nvidia-smi gives the GPU, ``device`` the name of its series. ``utilization`` and
    ``power_watts`` are means, ``memory_used_bytes`` is the most that was used, by anyone; None where it was not read.
    """

    index: int
    name: str
    device: str
    uuid: str
    memory_bytes: int | None
    utilization: float | None
    memory_used_bytes: int | None
    power_watts: float | None


def take_gpus(reader: RunReader, selection: Selection) -> tuple[Gpu, ...]:
    """Return the GPUs with what they did in a selection's range of time."""
    found = []
    for row in reader.devices():
        used = total_of_series(reader, "gpu_memory_used_bytes", None, selection, row.name)
        busy, power = (
            mean_of_series(reader, name, None, selection, row.name) for name in (UTILIZATION, "gpu_power_watts")
        )
        most_bytes = int(used.most) if used.is_known else None
        found.append(Gpu(row.index, row.model, row.name, row.uuid, row.memory_bytes, busy, most_bytes, power))
    return tuple(found)


LINES = 10


class IdleLine(PhasePlace, frozen=True):
    """A line in a phase, with what of the idle time may lie at it or below."""

    idle: IdleShare


class GpuIdle(msgspec.Struct, frozen=True):
    """How long the GPUs that training processes use were idle, and what their threads did meanwhile.

    ``share`` is that of the GPUs' time, ``known_s`` of it in all. ``phases`` and ``lines`` have the shares of the idle
    time, those that may have most first, by readings ``period_s`` apart: windows alone resolve shorter gaps.
    """

    share: float
    known_s: float
    period_s: float
    phases: dict[str, IdleShare]
    lines: tuple[IdleLine, ...]


def take_gpu_idle(reader: RunReader, selection: Selection, phases: PhaseIndex) -> GpuIdle | None:
    """Return how idle the GPUs of a selection's processes were; None where none was read in its range of time."""
    trainers = [row.id for row in selection.trainers(reader)]
    total = total_utilization(reader, trainers, selection.from_ns, selection.to_ns)
    if total.mean is None or not total.known_ns:
        return None
    line_of = functools.cache(lambda stack: (phases.of_stack(stack), phases.user_line(stack)))
    by_phase, by_line = IdleTime[str](), IdleTime[tuple[str, FrameRow | None]]()
    period_ns = _read(reader, selection, (by_phase, phases.of_stack), (by_line, line_of), queue_of=_queues(phases))
    lines = [
        IdleLine(phase, *row.place, idle)
        for (phase, row), idle in by_line.shares().items()
        if row is not None and selection.phase in {None, phase}
    ]
    found = {name: idle for name, idle in by_phase.shares().items() if selection.phase in {None, name}}
    return GpuIdle(1 - total.mean, total.known_ns / SECOND_NS, period_ns / SECOND_NS, found, tuple(lines[:LINES]))


def idle_bounds(reader: RunReader, selection: Selection, phases: PhaseIndex) -> dict[str, IdleShare]:
    """Return the bounds of each phase's share of the idle time alone, as a live run asks for them again and again."""
    by_phase = IdleTime[str]()
    _read(reader, selection, (by_phase, phases.of_stack))
    return by_phase.bounds()


# These copy what may be large, and while they do no kernel runs.
_COPIES = re.compile(r"\.(cpu|numpy|tolist|to)\(")
_STARTS_NOTHING = frozenset({DATA_WAIT, DATA_LOAD, LOGGING})


def _queues(phases: PhaseIndex) -> Callable[[int], Queue | None]:
    """Return what a stack tells of the GPU's queue."""

    @functools.cache
    def queue_of(stack: int) -> Queue | None:
        phase, line = phases.of_stack(stack), phases.user_line(stack)
        if phase in _STARTS_NOTHING:
            return Queue.STAYS
        is_wait = phase == SYNCHRONIZE and line is not None and not _COPIES.search(line.source or ".to(")
        return Queue.RUNS_DRY if is_wait else None

    return queue_of


def _read(
    reader: RunReader,
    selection: Selection,
    *kinds: tuple[IdleTime[Any], Callable[[int], Any]],
    queue_of: Callable[[int], Queue | None] = lambda stack: None,
) -> float:
    """Take in the readings of a selection, by the states of each kind; return the nanoseconds between two of them."""
    from_ns, to_ns = selection.bounds(reader.info)
    names = (UTILIZATION, GRAPHICS_ACTIVE)
    name = min(names, key=lambda one: GpuTracks(reader, from_ns, to_ns, name=one).period_ns or math.inf)
    trainers = {row.id for row in selection.trainers(reader)}
    mains = [row for row in reader.main_threads() if row.process in trainers]
    for part in spread(from_ns, to_ns, LOOKED_AT_NS // max(len(trainers), 1)):
        tracks = GpuTracks(reader, *part, name=name)
        for thread in mains:
            rows, utilization = list(reader.intervals(*part, {thread.id})), tracks.of_process(thread.process)
            for time, state_of in kinds:
                time.add(utilization, rows, state_of, queue_of)
    return GpuTracks(reader, from_ns, to_ns, name=name).period_ns or 0
