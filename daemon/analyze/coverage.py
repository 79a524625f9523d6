"""The quality of a run's samples: time covered, torn stacks, cost, processes sampled in turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary, proxy

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import total_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow, RecordedTotal, RecordingRow, RunInfo
from profd.daemon.store.stepfunction import IntervalSet
from profd.daemon.timerange import EVER, TimeRange


class Lives:
    """The processes of a run, and what the recordings added so far cover of them."""

    def __init__(self, reader: RunReader) -> None:
        # The reader holds this object below: a plain reference would keep both forever.
        self._reader: RunReader = proxy(reader)
        self.covers: defaultdict[int, IntervalSet] = defaultdict(IntervalSet)
        """What the recordings of each process cover."""
        self.known_to_ns = reader.info.started_ns
        """When the newest recording of any process ends: nothing later is known yet."""
        self.recorded = RecordedTotal(0, 0)
        self._gaps: defaultdict[int, IntervalSet] = defaultdict(IntervalSet)
        self._last_gap = 0

    def add(self, recordings: Iterable[RecordingRow]) -> None:
        """Add recordings, those of a process in order of time.

        A recording without a whole stack covers nothing.
        """
        for row in recordings:
            self.recorded = RecordedTotal(
                self.recorded.samples + row.samples, self.recorded.torn + row.torn
            )
            if row.samples > row.torn:
                self.covers[row.process].add(row.start_ns, row.end_ns)
                self.known_to_ns = max(self.known_to_ns, row.end_ns)
        for gap in self._reader.gaps_after(self._last_gap):
            self._gaps[gap.process].add(gap.start_ns, gap.end_ns)
            self._last_gap = gap.id
        for known in (self.covers, self._gaps):
            for forgotten in known.keys() - self._reader.processes.keys():
                del known[forgotten]

    def weight(self, process: int, time: TimeRange = EVER) -> float:
        """Return how long a process lived in a range for each second recorded there.

        1 if all was recorded, or nothing. Only pauses between recordings count: it is unknown what
        a process did in a gap.
        """
        row = self._reader.processes[process]
        known = time.within(TimeRange(self._reader.info.started_ns, self.known_to_ns))
        lived = row.life.within(known)
        covered_ns = self.covers[process].between(*known)
        lived_ns = lived.length_ns - self._gaps[process].between(*lived)
        return max(lived_ns, covered_ns) / covered_ns if covered_ns else 1.0


_LIVES: WeakKeyDictionary[RunReader, tuple[Lives, int]] = WeakKeyDictionary()
"""What each reader has read, up to which recording: a day has seventy thousand."""


def take_lives(reader: RunReader) -> Lives:
    """Return the lives of all processes of a run, as far as it is written."""
    lives, newest = _LIVES.get(reader) or (Lives(reader), 0)
    rows = reader.recordings_after(newest)
    lives.add(rows)
    _LIVES[reader] = (lives, rows[-1].id if rows else newest)
    return lives


COST_SERIES = "profd_cpu_cores"
_NOTHING = IntervalSet()


class Coverage(msgspec.Struct, frozen=True):
    """The quality of a selection's samples; None if nothing is known.

    ``share`` is the part of the training processes' life under profd that recordings with samples
    cover. It begins with a process's first recording (nobody was attached before) and ends with the
    process, with the run, or, in a live run, with the last recording written, because the next one
    is in flight. A process that was never recorded counts as not covered from when it was seen.
    ``torn_share`` is the part of all stacks read that was dropped as impossible.
    ``cost_core_share`` is what profd and its samplers used on average, in cores.
    """

    share: float | None
    torn_share: float | None
    cost_core_share: float | None


def take_coverage(reader: RunReader, selection: Selection) -> Coverage:
    """Return the coverage of a selection's range of time, over its processes of role main."""
    torn_share = reader.recorded(selection.time).torn_share
    cost = total_of_series(reader, COST_SERIES, None, selection).mean
    return Coverage(covered_share(reader, take_lives(reader).covers, selection), torn_share, cost)


class GapTotal(msgspec.Struct, frozen=True):
    """The gaps of one reason: their number, their seconds and the ``text`` of the longest."""

    reason: str
    count: int
    seconds: float
    text: str


def take_gaps(reader: RunReader, selection: Selection) -> tuple[GapTotal, ...]:
    """Return the gaps of a selection's main processes in its time by reason, the longest first."""
    trainers = {process.id for process in selection.trainers(reader)}
    by_reason: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for gap in reader.gaps(selection.time):
        if gap.process in trainers:
            inside = TimeRange(gap.start_ns, gap.end_ns).within(selection.time)
            by_reason[gap.reason].append((inside.length_ns, gap.text))
    found = [
        GapTotal(
            reason, len(parts), sum(length_ns for length_ns, _ in parts) / SECOND_NS, max(parts)[1]
        )
        for reason, parts in by_reason.items()
    ]
    return tuple(sorted(found, key=lambda gap: -gap.seconds))


def covered_share(
    reader: RunReader, covers: Mapping[int, IntervalSet], selection: Selection
) -> float | None:
    """Return the covered share of a selection's time; None if no process was to be sampled.

    ``covers`` is what the recordings of each process cover.
    """
    lived_ns = covered_ns = 0
    for process in selection.trainers(reader):
        cover = covers.get(process.id, _NOTHING)
        life = sampled_life(process, reader.info, cover.start_ns, cover.end_ns)
        inside = life.within(selection.time)
        lived_ns += inside.length_ns
        covered_ns += cover.between(*inside)
    return covered_ns / lived_ns if lived_ns else None


def sampled_life(
    process: ProcessRow, run: RunInfo, first_ns: int | None, last_ns: int | None
) -> TimeRange:
    """Return from when to when a process was to be sampled; see ``Coverage.share``.

    ``first_ns`` is when its first recording with samples begins, ``last_ns`` when the last one
    ends; None without any.
    """
    start_ns = process.seen_ns if first_ns is None else first_ns
    if run.state == "live" and process.ended_ns is None and last_ns is not None:
        return TimeRange(start_ns, last_ns)
    return TimeRange(start_ns, process.ended_ns or run.end_ns)
