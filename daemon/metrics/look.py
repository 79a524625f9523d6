"""One look at a run: what its parts tell their values from. Knows no metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from profd.daemon.metrics.catalog import Sample
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow, RecordingRow, SeriesRow


@dataclass(frozen=True, slots=True)
class Look:
    """A run at one moment, by a reader that knows what lives.

    ``recordings`` are those written since the look before, ``newest`` the newest value of each series. Counters begin
    at ``began_ns``, with the run unless it was old already.
    """

    reader: RunReader
    began_ns: int
    recordings: tuple[RecordingRow, ...]
    newest: Mapping[int, float]

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.reader.info.id

    def of_name(self, name: str) -> Iterator[SeriesRow]:
        """Yield the series of this name."""
        return (row for row in self.reader.series.values() if row.name == name)

    def value(self, name: str, device: str | None = None) -> float | None:
        """Return the newest value of the host, or of a device; None where there is none."""
        found = (row.id for row in self.of_name(name) if row.process is None and row.device == device)
        return self.newest.get(next(found, 0))

    def trainers(self) -> Iterator[ProcessRow]:
        """Yield the training processes, those too that have just ended."""
        return (row for row in self.reader.processes.values() if row.role == "main")


class Part(Protocol):
    """Tells some metrics of one run."""

    def take(self, look: Look) -> Iterator[Sample]:
        """Take in what is new, and yield the values as of this look; raises RunUnreadable."""
        ...


def rank_of(member: ProcessRow) -> str:
    """Return the label of a process's rank, empty where it has none."""
    return "" if member.rank is None else str(member.rank)
