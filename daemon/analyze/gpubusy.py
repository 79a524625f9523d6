"""How busy the GPUs were while each stack ran."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from profd.daemon.analyze.conditions import covers_of
from profd.daemon.analyze.gpu import GpuTracks
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader


class Busy(msgspec.Struct, frozen=True):
    """How busy the GPUs of a process were during a stack: ``utilization`` is a mean over the ``known_ns`` of it."""

    utilization: float
    known_ns: float


def utilization_by_stack(reader: RunReader, tracks: GpuTracks, selection: Selection) -> dict[int, Busy]:
    """Return how busy the GPUs were during each stack of a selection, for the stacks of which that is known.

    The phase that a selection names is left aside: it chooses among these stacks.
    """
    known_ns: defaultdict[int, float] = defaultdict(float)
    busy_ns: defaultdict[int, float] = defaultdict(float)
    threads = selection.threads(reader)
    if not threads or not tracks.devices:
        return {}
    covers = covers_of(reader, selection.when, threads)
    for interval in reader.intervals(selection.from_ns, selection.to_ns, threads):
        track = tracks.of_process(reader.threads[interval.thread].process)
        end_ns = interval.start_ns + interval.duration_ns
        parts = (
            covers[interval.thread].ranges_between(interval.start_ns, end_ns)
            if covers
            else [(interval.start_ns, end_ns)]
        )
        for part in parts:
            mean, known = track.mean(*part)
            known_ns[interval.stack] += known
            busy_ns[interval.stack] += mean * known
    return {stack: Busy(busy_ns[stack] / known, known) for stack, known in known_ns.items() if known}
