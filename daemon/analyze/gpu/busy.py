"""How busy the GPUs were while each stack ran."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from profd.daemon.analyze.gpu.usage import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.pieces import selected_pieces
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader


class Busy(msgspec.Struct, frozen=True):
    """How busy the GPUs of a process were during a stack: ``utilization`` is a mean over the ``known_ns`` of it."""

    utilization: float
    known_ns: float


def utilization_by_stack(
    reader: RunReader, tracks: GpuTracks, selection: Selection, phases: PhaseIndex | None = None
) -> dict[int, Busy]:
    """Return how busy the GPUs were during each stack of a selection, for the stacks of which that is known."""
    known_ns: defaultdict[int, float] = defaultdict(float)
    busy_ns: defaultdict[int, float] = defaultdict(float)
    threads = selection.threads(reader)
    if not threads or not tracks.devices:
        return {}
    for piece in selected_pieces(reader, selection, threads, phases):
        mean, known = tracks.of_process(reader.threads[piece.thread].process).mean(piece.start_ns, piece.end_ns)
        known_ns[piece.stack] += known
        busy_ns[piece.stack] += mean * known
    return {stack: Busy(busy_ns[stack] / known, known) for stack, known in known_ns.items() if known}
