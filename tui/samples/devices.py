"""How busy the GPUs were while each stack ran, by the sums of whole minutes, else by an evenly spread part of a range.

Readings and intervals are gone through one by one, which takes long: so little is looked at, and seldom anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from profd.daemon.analyze.gpu.busy import Busy
from profd.daemon.analyze.gpu.usage import UTILIZATION, GpuTracks
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.tui.samples.sums import Summed, Sums
from profd.tui.view import Range

LOOKED_AT_NS = 30 * SECOND_NS
_SLICES = 10


class Devices:
    """The GPUs of one run."""

    def __init__(self, reader: RunReader, sums: Sums) -> None:
        self._reader = reader
        self._sums = sums
        self._busy: Mapping[int, Busy] = {}
        self._of: tuple[Range, frozenset[int]] | None = None

    def busy(self, asked: Range, threads: frozenset[int]) -> Mapping[int, Busy]:
        """Return how busy the GPUs were during each stack that some threads had in a range; empty without GPUs."""
        if not any(series.name == UTILIZATION for series in self._reader.series.values()):
            return {}
        if self._of is None or self._of[1] != threads or not asked.is_near(self._of[0]):
            summed = self._sums.read(asked, threads)
            found = self._look(asked, threads) if summed is None else _added(summed)
            self._busy, self._of = found, (asked, threads)
        return self._busy

    def _look(self, asked: Range, threads: frozenset[int]) -> Mapping[int, Busy]:
        known_ns: defaultdict[int, int] = defaultdict(int)
        busy_ns: defaultdict[int, float] = defaultdict(float)
        for one in _slices(asked):
            tracks = GpuTracks(self._reader, one.from_ns, one.to_ns)
            for row in self._reader.intervals(one.from_ns, one.to_ns, threads):
                track = tracks.of_process(self._reader.threads[row.thread].process)
                mean, known = track.mean(row.start_ns, row.start_ns + row.duration_ns)
                known_ns[row.stack] += known
                busy_ns[row.stack] += mean * known
        return _means(known_ns, busy_ns)


def _added(summed: Summed) -> Mapping[int, Busy]:
    """Return how busy the GPUs were in the whole minutes of a range."""
    known_ns: defaultdict[int, int] = defaultdict(int)
    busy_ns: defaultdict[int, float] = defaultdict(float)
    for row in summed.rows:
        known_ns[row.stack] += row.known_ns
        busy_ns[row.stack] += row.busy_ns
    return _means(known_ns, busy_ns)


def _means(known_ns: Mapping[int, int], busy_ns: Mapping[int, float]) -> Mapping[int, Busy]:
    return {stack: Busy(busy_ns[stack] / known, known) for stack, known in known_ns.items() if known}


def _slices(asked: Range) -> Iterator[Range]:
    """Yield the parts of a range to look at: all of a short one."""
    if asked.length_ns <= LOOKED_AT_NS:
        yield asked
        return
    for number in range(_SLICES):
        from_ns = asked.from_ns + asked.length_ns * number // _SLICES
        yield Range(from_ns, from_ns + LOOKED_AT_NS // _SLICES)
