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
from profd.daemon.store.sums.split import Split
from profd.tui.view import Range

LOOKED_AT_NS = 30 * SECOND_NS
_SLICES = 10
# What lies beside the sums is left out where there is little of it.
_MOST_BESIDE_NS = 120 * SECOND_NS


class Devices:
    """The GPUs of one run."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._busy: Mapping[int, Busy] = {}
        self._of: tuple[Range, frozenset[int]] | None = None

    def busy(self, asked: Range, threads: frozenset[int]) -> Mapping[int, Busy]:
        """Return how busy the GPUs were during each stack that some threads had in a range; empty without GPUs."""
        if not any(series.name == UTILIZATION for series in self._reader.series.values()):
            return {}
        if self._of is None or self._of[1] != threads or not asked.is_near(self._of[0]):
            self._busy, self._of = self._look(asked, threads), (asked, threads)
        return self._busy

    def _look(self, asked: Range, threads: frozenset[int]) -> Mapping[int, Busy]:
        known_ns: defaultdict[int, int] = defaultdict(int)
        busy_ns: defaultdict[int, float] = defaultdict(float)
        run = Range(self._reader.info.started_ns, self._reader.info.end_ns)
        splits = self._reader.sums.split(*asked.open_at(run), threads)
        if any(one.minutes for one in splits) and _beside_ns(splits, run) <= _MOST_BESIDE_NS:
            for row in (row for one in splits for row in self._reader.sums.by_stack(one)):
                known_ns[row.stack] += row.known_ns
                busy_ns[row.stack] += row.busy_ns
        else:
            for one in _slices(asked):
                tracks = GpuTracks(self._reader, one.from_ns, one.to_ns)
                for interval in self._reader.intervals(one.from_ns, one.to_ns, threads):
                    track = tracks.of_process(self._reader.threads[interval.thread].process)
                    mean, known = track.mean(interval.start_ns, interval.start_ns + interval.duration_ns)
                    known_ns[interval.stack] += known
                    busy_ns[interval.stack] += mean * known
        return {stack: Busy(busy_ns[stack] / known, known) for stack, known in known_ns.items() if known}


def _beside_ns(splits: list[Split], run: Range) -> int:
    """Return for how long a range lies beside the sums: threads that are read at once count once."""
    bounds = {(rest.from_ns or run.from_ns, rest.to_ns or run.to_ns) for one in splits for rest in one.rest}
    return sum(to_ns - from_ns for from_ns, to_ns in bounds)


def _slices(asked: Range) -> Iterator[Range]:
    """Yield the parts of a range to look at: all of a short one."""
    if asked.length_ns <= LOOKED_AT_NS:
        yield asked
        return
    for number in range(_SLICES):
        from_ns = asked.from_ns + asked.length_ns * number // _SLICES
        yield Range(from_ns, from_ns + LOOKED_AT_NS // _SLICES)
