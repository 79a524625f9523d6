"""Merges the run files of a job's nodes into one, by replaying their rows as records.

Whose clock is ahead by how much is told, not found out here.

So several files can be written into one by the writer's own tables. Knows nothing of how many there are.
"""

from __future__ import annotations

import bisect
import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database, records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    Frame,
    FrameDescription,
    Identity,
    Interval,
    Placement,
    Point,
    Record,
    RecordingTaken,
    RunEnded,
    RunStarted,
)
from profd.daemon.store.rows import IntervalRow, ProcessRow, RecordingRow, SeriesRow, ThreadRow, WindowRow
from profd.daemon.store.tables import Tables

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


NODES = "nodes"
"""The name in table ``meta`` under which a joined file tells its nodes, as JSON."""


class JoinedNode(msgspec.Struct, frozen=True):
    """A node of a joined file: its run, how far its clock was ahead of the first node's, and how that is known.

    ``host`` tells it from the others; ``error_ns`` is None where the wall clocks were taken for equal.
    """

    number: int
    host: str
    run: str
    offset_ns: int
    error_ns: int | None
    source: str
    matched: int


class _MetaRow(msgspec.Struct, frozen=True):
    value: str


def nodes_of(reader: RunReader) -> tuple[JoinedNode, ...]:
    """Return the nodes of a joined file; none of any other run's."""
    rows = reader.select(_MetaRow, "SELECT value FROM meta WHERE name = ?", NODES)
    with database.reading(reader.path):
        return msgspec.json.decode(rows[0][0], type=tuple[JoinedNode, ...]) if rows else ()


def hosts_of(reader: RunReader) -> Mapping[int, str]:
    """Return by process the host that it ran on."""
    nodes = {node.number: node.host for node in nodes_of(reader)}
    host = reader.info.host
    return {row.id: nodes.get(node_of(row.start_ticks), host) for row in reader.processes.values()}


_AT_ONCE_NS = 60 * SECOND_NS


def join_runs(readers: Sequence[RunReader], nodes: Sequence[JoinedNode], name: str, path: Path) -> None:
    """Write the runs of a job's nodes, in the order of their numbers, to a new file ``path``.

    All must be held at one moment. Raises OutputUnwritable, and RunUnreadable where one turns out to be damaged.
    """
    replays = [
        Replay(reader, node.number, node.host, node.offset_ns) for reader, node in zip(readers, nodes, strict=True)
    ]
    connection = database.create(path)
    try:
        tables = Tables(connection, _Descriptions(readers))
        tables.begin(_started(readers, replays, name))
        _set_nodes(connection, nodes)
        for batch in _batches(replays):
            tables.commit(batch)
        tables.commit([_ended(readers, replays)])
        tables.finish()
    except sqlite3.Error as error:
        connection.close()
        raise database.unwritable(path, error) from error


class _Descriptions:
    """What the files tell of frames; of one that several have, the first one's word counts."""

    def __init__(self, readers: Sequence[RunReader]) -> None:
        self._known: dict[Frame, FrameDescription] = {}
        for row in (row for reader in readers for row in reader.frames.values()):
            frame = Frame(row.function, row.file, row.line)
            self._known.setdefault(frame, FrameDescription(row.module_path, row.is_library, row.source))

    def __call__(self, frame: Frame) -> FrameDescription:
        return self._known[frame]


def _batches(replays: Sequence[Replay]) -> Iterator[list[Record]]:
    """Yield the records of all nodes, a minute at a time: sums are made as time goes on."""
    yield [record for replay in replays for record in (*replay.processes(), *replay.devices())]
    once = sorted((record for replay in replays for record in (*replay.ends(), *replay.occasions())), key=_time_of)
    from_ns, end_ns = min(replay.started_ns for replay in replays), max(replay.end_ns for replay in replays)
    for at_ns in range(from_ns - _AT_ONCE_NS, end_ns + _AT_ONCE_NS, _AT_ONCE_NS):
        to_ns = at_ns + _AT_ONCE_NS
        batch = [record for replay in replays for record in replay.readings(at_ns, to_ns)]
        batch += [record for replay in replays for record in replay.samples(at_ns, to_ns)]
        yield sorted(batch, key=_time_of)
    # What names processes comes after all that is known of them: those that ended are forgotten.
    yield once


def _time_of(record: Record) -> int:
    return record.end_ns if isinstance(record, RecordingTaken) else record.at_ns


def _started(readers: Sequence[RunReader], replays: Sequence[Replay], name: str) -> RunStarted:
    """Return the start of the job: the first node's words, for all of them."""
    info = readers[0].info
    return RunStarted(
        id=name,
        name=info.name,
        mode=info.mode,
        target=Identity(info.pid, info.start_ticks),
        command=info.command,
        cwd=info.cwd,
        host=f"{len(readers)} nodes",
        user=info.user,
        started_ns=min(replay.started_ns for replay in replays),
        recorder=Identity(info.recorder.pid, 0),
        versions=info.versions,
        options=info.options,
    )


def _ended(readers: Sequence[RunReader], replays: Sequence[Replay]) -> RunEnded:
    """Return the end of the job: as the first node ended that did not end well, else as all did."""
    infos = [reader.info for reader in readers]
    badly = [info for info in infos if info.exit_code or info.exit_signal]
    info = (badly or infos)[0]
    at_ns = max(replay.end_ns for replay in replays)
    return RunEnded(at_ns, info.why_ended or "stopped", info.exit_code, info.exit_signal)


def _set_nodes(connection: sqlite3.Connection, nodes: Sequence[JoinedNode]) -> None:
    told = msgspec.json.encode(list(nodes)).decode()
    with contextlib.closing(connection.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (NODES, told))):
        pass
