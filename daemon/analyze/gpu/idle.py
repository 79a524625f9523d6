"""What Python did while the GPU was idle: by phase and by line of the user's code."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.gpu.busy import Busy
from profd.daemon.analyze.gpu.usage import IDLE_BELOW, GpuTracks
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.analyze.shares import PhaseLine, phase_shares, user_lines
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

LINES = 10


class GpuIdle(msgspec.Struct, frozen=True):
    """The time of a selection for which the GPUs of its processes were idle.

    ``known_s`` is the time of which utilization is known, ``mean_utilization`` the mean over it: what it lacks of 1 is
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
    """Return the part of a selection for which the GPUs were idle; the same where it asks for that already."""
    if any(condition.name == "gpu-idle" for condition in selection.when):
        return selection
    return msgspec.structs.replace(selection, when=(*selection.when, Condition("gpu-idle")))
