"""What the recordings of each process stand for: processes that are sampled in turns lived longer than was recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from weakref import WeakKeyDictionary, proxy

from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow, RecordedTotal, RecordingRow
from profd.daemon.store.sums.cover import Cover

_EVERY = -1  # no limit, as SQLite has it


class Lives:
    """The processes of a run with what was recorded of them, as far as recordings were added."""

    def __init__(self, reader: RunReader) -> None:
        self._reader: RunReader = proxy(reader)  # held by it below, it would never be let go of otherwise
        self._covers: defaultdict[int, Cover] = defaultdict(Cover)
        self.known_to_ns = reader.info.started_ns
        """When the newest recording of any process ends: of what came later nothing is known yet."""
        self._samples = self._torn = 0

    def add(self, recordings: Iterable[RecordingRow]) -> None:
        """Take in recordings, those of a process in order of time; those without a whole stack cover nothing."""
        for row in recordings:
            self._samples += row.samples
            self._torn += row.torn
            if row.samples > row.torn:
                self._covers[row.process].add(row.start_ns, row.end_ns)
                self.known_to_ns = max(self.known_to_ns, row.end_ns)

    @property
    def recorded(self) -> RecordedTotal:
        """What recordings have read in all."""
        return RecordedTotal(self._samples, self._torn)

    def cover(self, process: int) -> Cover:
        """Return what the recordings of a process cover."""
        return self._covers[process]

    def weight(self, process: int, from_ns: int | None = None, to_ns: int | None = None) -> float:
        """Return how long a process lived in [from_ns, to_ns) for each second of it that was recorded there.

        1 where it was recorded all the time, or not at all.
        """
        row = self._reader.processes[process]
        start_ns = row.seen_ns if from_ns is None else max(row.seen_ns, from_ns)
        end_ns = self._end_ns(row) if to_ns is None else min(self._end_ns(row), to_ns)
        covered_ns = self.cover(process).between(
            self._reader.info.started_ns if from_ns is None else from_ns,
            self.known_to_ns if to_ns is None else to_ns,
        )
        return max(end_ns - start_ns, covered_ns) / covered_ns if covered_ns else 1.0

    def _end_ns(self, row: ProcessRow) -> int:
        return self.known_to_ns if row.ended_ns is None else min(row.ended_ns, self.known_to_ns)


_LIVES: WeakKeyDictionary[RunReader, tuple[Lives, int]] = WeakKeyDictionary()
"""Of each reader what it has read already, up to which recording: a day has seventy thousand."""


def take_lives(reader: RunReader) -> Lives:
    """Return the lives of all processes of a run, as far as it is written."""
    lives, newest = _LIVES.get(reader) or (Lives(reader), 0)
    rows = reader.recordings_after(newest, _EVERY)
    lives.add(rows)
    _LIVES[reader] = (lives, rows[-1].id if rows else newest)
    return lives
