"""The GPUs of a run: how busy and full they were, and what Python did while they were idle."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.functions import Busy, PhaseLine, phase_shares, user_lines
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.analyze.series import mean_of_series, total_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.stepfunction import IDLE_BELOW, UTILIZATION


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
        gpu = Gpu(
            index=row.index,
            name=row.model,
            device=row.name,
            uuid=row.uuid,
            memory_bytes=row.memory_bytes,
            utilization=mean_of_series(reader, UTILIZATION, None, selection, row.name),
            memory_used_bytes=int(used.most) if used.is_known else None,
            power_watts=mean_of_series(reader, "gpu_power_watts", None, selection, row.name),
        )
        found.append(gpu)
    return tuple(found)


LINES = 10


class GpuIdle(msgspec.Struct, frozen=True):
    """The time of a selection for which the GPUs of its processes were idle.

    ``known_s`` is the time with a known utilization, ``mean_utilization`` the mean over it: what it lacks of 1 is
    all idle time. ``share`` is the part of it in gaps that readings show, of less than ``below``, ``period_s`` apart:
    shorter gaps are in the mean alone. ``samples`` were taken in these gaps; ``phases`` are shares of them, and
    ``lines`` the lines of the user's code at which most of them went by.
    """

    below: float
    period_s: float
    known_s: float
    mean_utilization: float
    idle_s: float
    share: float
    samples: int
    phases: dict[str, float]
    lines: tuple[PhaseLine, ...]


def take_gpu_idle(
    reader: RunReader, selection: Selection, phases: PhaseIndex, tracks: GpuTracks, busy: dict[int, Busy]
) -> GpuIdle | None:
    """Return what ran while the GPU was idle; None where no reading falls into the selection.

    ``busy`` is what ``utilization_by_stack`` says of the stacks of the selection.
    """
    known_ns = sum(one.known_ns for one in busy.values())
    if not known_ns or tracks.period_ns is None:
        return None
    idle = take_profile(reader, while_gpu_idle(selection), phases)
    return GpuIdle(
        below=IDLE_BELOW,
        period_s=tracks.period_ns / SECOND_NS,
        known_s=known_ns / SECOND_NS,
        mean_utilization=sum(one.utilization * one.known_ns for one in busy.values()) / known_ns,
        idle_s=idle.total_ns / SECOND_NS,
        share=min(idle.total_ns / known_ns, 1.0),
        samples=idle.total_samples,
        phases=phase_shares(idle, phases),
        lines=tuple(user_lines(idle, phases)[:LINES]),
    )


def while_gpu_idle(selection: Selection) -> Selection:
    if any(condition.name == "gpu-idle" for condition in selection.when):
        return selection
    return msgspec.structs.replace(selection, when=(*selection.when, Condition("gpu-idle")))
