"""How well a run is seen, counted as it grows; ``analyze.coverage`` says what the numbers mean, and counts anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow, RecordingRow


class Coverage:
    """Counts over the recordings of one run."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._began_ns: dict[int, int] = {}
        self._covered_ns: defaultdict[int, int] = defaultdict(int)
        self._seen_to_ns: dict[int, int] = {}
        self._read = 0
        self._torn = 0

    def add(self, recordings: Sequence[RecordingRow]) -> None:
        """Take in recordings."""
        for row in recordings:
            self._read += row.samples
            self._torn += row.torn
            if row.samples > row.torn:
                self._cover(row)

    def _cover(self, row: RecordingRow) -> None:
        self._began_ns.setdefault(row.process, row.start_ns)
        start_ns = max(row.start_ns, self._seen_to_ns.get(row.process, 0))
        self._covered_ns[row.process] += max(row.end_ns - start_ns, 0)
        self._seen_to_ns[row.process] = max(row.end_ns, start_ns)

    @property
    def samples(self) -> int:
        """How many samples are kept, of all threads."""
        return self._read - self._torn

    def torn_share(self) -> float | None:
        """Return the share of the stacks read that were dropped as impossible."""
        return self._torn / self._read if self._read else None

    def share(self) -> float | None:
        """Return the share of the training processes' time under profd that was sampled."""
        covered_ns = lived_ns = 0
        for row in self._reader.processes.values():
            if row.role == "main":
                covered_ns += self._covered_ns[row.id]
                lived_ns += self._lived_ns(row)
        return covered_ns / lived_ns if lived_ns else None

    def read_to_ns(self) -> int:
        """Return up to when the recordings were read."""
        return max(self._seen_to_ns.values(), default=0)

    def _lived_ns(self, row: ProcessRow) -> int:
        """Return for how long a process was to be sampled, in a live run up to its newest recording."""
        if row.id not in self._began_ns:
            return max((row.ended_ns or self._reader.info.end_ns) - row.seen_ns, 0)
        is_in_flight = self._reader.info.state == "live" and row.ended_ns is None
        until_ns = self._seen_to_ns[row.id] if is_in_flight else row.ended_ns or self._reader.info.end_ns
        return max(until_ns - self._began_ns[row.id], self._covered_ns[row.id])
