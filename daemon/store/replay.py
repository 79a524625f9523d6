"""Gives the rows of a run file as the records that they were written from, with their times on another clock.

So several files can be written into one by the writer's own tables. Knows nothing of how many there are.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, Identity, Interval, Placement, Point, Record
from profd.daemon.store.rows import IntervalRow, ProcessRow, RecordingRow, SeriesRow, ThreadRow, WindowRow

_NODE_BIT = 40


def node_of(start_ticks: int) -> int:
    """Return the number of the node of a process in a joined file."""
    return start_ticks >> _NODE_BIT


class Replay:
    """The records of one run file.

    ``label`` names its node: what the file says of the host as a whole, or of a device, is of that node's. Processes
    keep their PIDs and get a start time of their own, as those of two nodes may have both in common.
    """

    def __init__(self, reader: RunReader, number: int, label: str, ahead_ns: int) -> None:
        """Replay a file as node ``number``, whose clock is ahead by ``ahead_ns``."""
        self._reader = reader
        self._number = number
        self._label = label
        self._ahead_ns = ahead_ns
        self._recordings: dict[int, list[RecordingRow]] = defaultdict(list)
        for row in reader.recordings():
            self._recordings[row.process].append(row)

    @property
    def started_ns(self) -> int:
        """When the run began."""
        return self._reader.info.started_ns - self._ahead_ns

    @property
    def end_ns(self) -> int:
        """The last time that anything is known of."""
        return self._reader.info.end_ns - self._ahead_ns

    def identity(self, row: ProcessRow) -> Identity:
        """Return a process as it is called among those of all nodes."""
        return Identity(row.pid, row.start_ticks + (self._number << _NODE_BIT))

    def processes(self) -> Iterator[Record]:
        """Yield all processes, parents first."""
        placements = self._reader.placements()
        for row in sorted(self._reader.processes.values(), key=lambda row: row.id):
            place = placements.get(row.id)
            yield records.ProcessSeen(
                identity=self.identity(row),
                parent=None if row.parent is None else self.identity(self._reader.processes[row.parent]),
                command=row.command,
                role=row.role,
                rank=row.rank,
                ordinal=row.ordinal,
                python=row.python,
                at_ns=row.seen_ns - self._ahead_ns,
                placement=None
                if place is None or row.rank is None
                else Placement(row.rank, place.local_rank, self._number, place.world_size),
            )

    def ends(self) -> Iterator[Record]:
        """Yield which processes ended."""
        for row in self._reader.processes.values():
            if row.ended_ns is not None:
                at_ns = row.ended_ns - self._ahead_ns
                yield records.ProcessEnded(self.identity(row), at_ns, row.exit_code, row.exit_signal)

    def devices(self) -> Iterator[Record]:
        """Yield the GPUs."""
        for row in self._reader.devices():
            name = self._device(row.name)
            yield records.DeviceSeen(self.started_ns, name, row.index, row.model, row.uuid, row.memory_bytes)

    def occasions(self) -> Iterator[Record]:
        """Yield what happened once: events, windows, hangs."""
        for row in self._reader.events():
            text = f"{self._label}: {row.text}" if row.process is None else row.text
            yield records.EventHappened(row.at_ns - self._ahead_ns, row.kind, text, self._identity_of(row.process))
        for window in self._reader.windows():
            yield self._window(window)
        for hang in self._reader.hangs():
            at_ns, since_ns = hang.at_ns - self._ahead_ns, hang.since_ns - self._ahead_ns
            yield records.HangFound(at_ns, since_ns, f"{self._label}: {hang.text}", hang.report)
            if hang.ended_ns is not None:
                yield records.HangEnded(hang.ended_ns - self._ahead_ns, at_ns)

    def samples(self, from_ns: int, to_ns: int) -> Iterator[Record]:
        """Yield the recordings that start in a range of time, each with the intervals that start until the next."""
        threads: defaultdict[int, list[ThreadRow]] = defaultdict(list)
        for thread in self._reader.threads.values():
            threads[thread.process].append(thread)
        for process, rows in self._recordings.items():
            starts = [row.start_ns - self._ahead_ns for row in rows]
            first, last = bisect.bisect_left(starts, from_ns), bisect.bisect_left(starts, to_ns)
            for at in range(first, last):
                following_ns = rows[at + 1].start_ns if at + 1 < len(rows) else None
                yield self._recording(rows[at], threads[process], rows[at].start_ns if at else None, following_ns)

    def readings(self, from_ns: int, to_ns: int) -> Iterator[Record]:
        """Yield the values of all series in a range of time."""
        at: defaultdict[int, list[Point]] = defaultdict(list)
        for series in self._reader.series.values():
            for point in self._reader.points(series.id, from_ns + self._ahead_ns, to_ns + self._ahead_ns):
                at[point.at_ns - self._ahead_ns].append(self._point(series, point.value))
        for at_ns, points in at.items():
            yield records.PointsTaken(at_ns, tuple(points))

    def _recording(
        self, row: RecordingRow, threads: list[ThreadRow], from_ns: int | None, to_ns: int | None
    ) -> records.RecordingTaken:
        by_thread: defaultdict[int, list[IntervalRow]] = defaultdict(list)
        for interval in self._reader.intervals(from_ns, to_ns, [thread.id for thread in threads]):
            by_thread[interval.thread].append(interval)
        index: dict[int, int] = {}
        timelines = tuple(
            records.ThreadTimeline(
                thread.os_tid,
                thread.name,
                thread.is_main,
                tuple(self._interval(one, index) for one in by_thread[thread.id]),
            )
            for thread in threads
            if thread.id in by_thread
        )
        kept = {
            name: getattr(row, name) for name in ("rate_hz", "samples", "torn", "errors", "clock_error_ns", "cpu_ns")
        }
        return records.RecordingTaken(
            identity=self.identity(self._reader.processes[row.process]),
            start_ns=row.start_ns - self._ahead_ns,
            end_ns=row.end_ns - self._ahead_ns,
            stacks=tuple(self._frames(stack) for stack in index),
            threads=timelines,
            **kept,
        )

    def _interval(self, row: IntervalRow, index: dict[int, int]) -> Interval:
        place = index.setdefault(row.stack, len(index))
        return Interval(row.start_ns - self._ahead_ns, row.duration_ns, place, row.samples)

    def _frames(self, stack: int) -> tuple[Frame, ...]:
        return tuple(Frame(row.function, row.file, row.line) for row in self._reader.frames_of(stack))

    def _point(self, series: SeriesRow, value: float) -> Point:
        is_of_node = series.process is None or series.device is not None
        device = self._device(series.device) if is_of_node else None
        return Point(series.name, value, self._identity_of(series.process), series.os_tid, device)

    def _device(self, name: str | None) -> str:
        return self._label if name is None else f"{name} on {self._label}"

    def _identity_of(self, process: int | None) -> Identity | None:
        return None if process is None else self.identity(self._reader.processes[process])

    def _window(self, row: WindowRow) -> records.WindowTaken:
        device = (row.device_busy_ns, row.device_idle_ns, row.device_overlap_ns)
        return records.WindowTaken(
            identity=self.identity(self._reader.processes[row.process]),
            at_ns=max(row.end_ns, row.asked_ns) - self._ahead_ns,
            source=row.source,
            asked_ns=row.asked_ns - self._ahead_ns,
            error=row.error,
            start_ns=max(row.start_ns - self._ahead_ns, 0),
            end_ns=max(row.end_ns - self._ahead_ns, 0),
            steps=tuple(
                records.WindowStep(step.start_ns - self._ahead_ns, step.end_ns - self._ahead_ns)
                for step in self._reader.window_steps(row.id)
            ),
            device=None if row.device_busy_ns is None else records.DeviceTime(*(time or 0 for time in device)),
            operators=tuple(
                records.OperatorTotals(*msgspec.structs.astuple(operator))
                for operator in self._reader.operators(row.id)
            ),
            trace_bytes=row.trace_bytes,
            trace=self._reader.window_trace(row.id),
        )
