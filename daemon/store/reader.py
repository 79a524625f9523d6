"""Reads a run file, live or finished: the one way by which anything that shows something gets at a run.

A reader belongs to one thread at a time. Tables that only grow (frames, stacks, processes, threads) are kept in memory
and topped up on ``refresh``; the large ones (intervals, points) are read by time range. What is asked of each kind of
row stands in a module of its own; here they are put together.
"""

from __future__ import annotations

from types import TracebackType

import msgspec

from profd.daemon.store import database
from profd.daemon.store.pointreader import PointReader
from profd.daemon.store.records import HangReport
from profd.daemon.store.rows import DeviceRow, EventRow, HangRow, OutputRow, PlacementRow
from profd.daemon.store.samplereader import SampleReader
from profd.daemon.store.windowreader import WindowReader


class RunReader(SampleReader, PointReader, WindowReader):
    """An open run file.

    Every method raises RunUnreadable where the file turns out to be damaged.
    """

    def __enter__(self) -> RunReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def events(self, after_id: int = 0) -> list[EventRow]:
        """Return the events written after the one with this id, in the order of writing."""
        return [
            EventRow(*row)
            for row in self.select(
                EventRow, "SELECT id, at_ns, kind, process, text FROM event WHERE id > ? ORDER BY id", after_id
            )
        ]

    def output(self, after_id: int = 0) -> list[OutputRow]:
        """Return the script's output written after the row with this id, in order."""
        return [
            OutputRow(*row)
            for row in self.select(OutputRow, "SELECT id, at_ns, data FROM output WHERE id > ? ORDER BY id", after_id)
        ]

    def hangs(self) -> list[HangRow]:
        """Return the hangs of the run in order of time; none from a file that is older than their table."""
        if not self.has_table("hang"):
            return []
        rows = self._query("SELECT id, at_ns, since_ns, ended_ns, cause, text, report FROM hang ORDER BY id")
        with database.reading(self.path):
            reports = [msgspec.json.decode(str(row[-1]), type=HangReport) for row in rows]
        return [HangRow(*row[:-1], report) for row, report in zip(rows, reports, strict=True)]  # type: ignore[call-arg]

    def placements(self) -> dict[int, PlacementRow]:
        """Return by process the places of ranks in their job; none from a file that is older than their table."""
        if not self.has_table("placement"):
            return {}
        rows = self.select(PlacementRow, "SELECT process, local_rank, node, world_size FROM placement")
        return {row[0]: PlacementRow(*row) for row in rows}

    def devices(self) -> list[DeviceRow]:
        """Return the GPUs that the run used, in order; none from a file that is older than their table."""
        if not self.has_table("device"):
            return []
        rows = self.select(
            DeviceRow, "SELECT name, number, model, uuid, memory_bytes FROM device ORDER BY number, name"
        )
        return [DeviceRow(*row) for row in rows]
