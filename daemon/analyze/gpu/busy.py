"""How busy the GPUs were while each stack ran."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from profd.daemon.analyze.gpu.usage import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.pieces import selected_pieces
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.sums.split import Rest


class Busy(msgspec.Struct, frozen=True):
    """How busy the GPUs of a process were during a stack: ``utilization`` is a mean over the ``known_ns`` of it."""

    utilization: float
    known_ns: float


def utilization_by_stack(
    reader: RunReader, tracks: GpuTracks, selection: Selection, phases: PhaseIndex | None = None
) -> dict[int, Busy]:
    """Return how busy the GPUs were during each stack of a selection, for the stacks of which that is known."""
    threads = selection.threads(reader)
    if not threads or not tracks.devices:
        return {}
    times = _Times()
    if selection.when:
        times.read(reader, selection, Rest(threads, selection.from_ns, selection.to_ns), phases)
        return times.busy()
    for one in reader.sums.split(selection.from_ns, selection.to_ns, threads):
        index = None if selection.phase is None else phases or PhaseIndex(reader)
        for row in reader.sums.by_stack(one):
            if index is None or index.of_stack(row.stack) == selection.phase:
                times.add(row.stack, row.known_ns, row.busy_ns)
        for rest in one.rest:
            times.read(reader, selection, rest, phases)
    return times.busy()


class _Times:
    """By stack, for how long it is known how busy the GPUs were, and that time weighted with how busy they were."""

    def __init__(self) -> None:
        self._known_ns: defaultdict[int, float] = defaultdict(float)
        self._busy_ns: defaultdict[int, float] = defaultdict(float)

    def add(self, stack: int, known_ns: float, busy_ns: float) -> None:
        """Count some time of a stack."""
        self._known_ns[stack] += known_ns
        self._busy_ns[stack] += busy_ns

    def read(self, reader: RunReader, selection: Selection, rest: Rest, phases: PhaseIndex | None) -> None:
        """Count the intervals of a range of time one by one."""
        tracks = GpuTracks(reader, rest.from_ns, rest.to_ns)
        part = msgspec.structs.replace(selection, from_ns=rest.from_ns, to_ns=rest.to_ns)
        for piece in selected_pieces(reader, part, rest.threads, phases):
            mean, known_ns = tracks.of_process(reader.threads[piece.thread].process).mean(piece.start_ns, piece.end_ns)
            self.add(piece.stack, known_ns, mean * known_ns)

    def busy(self) -> dict[int, Busy]:
        """Return how busy the GPUs were during each stack of which that is known."""
        known = {stack: known_ns for stack, known_ns in self._known_ns.items() if known_ns}
        return {stack: Busy(self._busy_ns[stack] / known_ns, known_ns) for stack, known_ns in known.items()}
