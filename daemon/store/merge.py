"""Merges the run files of a job's nodes into one.

It replays their rows as records, which the writer's own tables then write. The caller says by how
much each node's clock is ahead.
"""

from __future__ import annotations

import bisect
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database, records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    Frame,
    FrameDescription,
    Identity,
    Interval,
    Point,
    Record,
    RunStarted,
    ThreadTimeline,
    time_of,
)
from profd.daemon.store.rows import RecordingRow, RunInfo, ThreadRow, WindowRow
from profd.daemon.store.tables import Tables
from profd.daemon.timerange import EVER, TimeRange

# The bits of a process's start time from here up are the number of its node in a joined file.
_NODE_BIT = 40
_AT_ONCE_NS = 60 * SECOND_NS
_TIMES = frozenset({"asked_ns", "at_ns", "end_ns", "ended_ns", "since_ns", "start_ns"})
Part = TypeVar("Part", bound=msgspec.Struct)


class JoinedNode(msgspec.Struct, frozen=True):
    """A node of a joined file: its run, and the offset of its clock.

    ``offset_ns`` says how far its clock was ahead of the first node's, and ``source`` how that is
    known. ``host`` is its name among the nodes. ``error_ns`` is None if the wall clocks were
    assumed to agree.
    """

    number: int
    host: str
    run: str
    offset_ns: int
    error_ns: int | None
    source: str
    matched: int


def nodes_of(reader: RunReader) -> tuple[JoinedNode, ...]:
    """Return the nodes of a joined file; any other run has none."""
    nodes = reader.value(str | None, "SELECT value FROM meta WHERE name = 'nodes'")
    with database.reading(reader.path):
        return msgspec.json.decode(nodes, type=tuple[JoinedNode, ...]) if nodes is not None else ()


def hosts_of(reader: RunReader) -> Mapping[int, str]:
    """Return the host of each process."""
    nodes = {node.number: node.host for node in nodes_of(reader)}
    host = reader.info.host
    return {
        row.id: nodes.get(row.start_ticks >> _NODE_BIT, host) for row in reader.processes.values()
    }


def join_runs(
    readers: Sequence[RunReader], nodes: Sequence[JoinedNode], name: str, path: Path
) -> None:
    """Write the runs of a job's nodes, in the order of their numbers, to a new file ``path``.

    All readers must be held at one moment. Raises OutputUnwritable, and RunUnreadable if a run
    turns out to be damaged.
    """
    replays = [_Replay(reader, node) for reader, node in zip(readers, nodes, strict=True)]
    started_ns, end_ns = (
        min(replay.started_ns for replay in replays),
        max(replay.end_ns for replay in replays),
    )
    infos = [reader.info for reader in readers]
    descriptions = _descriptions(readers)
    connection = database.create(path)
    try:
        tables = Tables(connection, descriptions.__getitem__)
        tables.begin(_job_started(infos, name, started_ns))
        database.set_meta(connection, nodes=msgspec.json.encode(list(nodes)).decode())
        tables.commit([record for replay in replays for record in replay.members()])
        # A minute at a time, because sums are made as time goes on.
        for at_ns in range(started_ns - _AT_ONCE_NS, end_ns + _AT_ONCE_NS, _AT_ONCE_NS):
            time = TimeRange(at_ns, at_ns + _AT_ONCE_NS)
            batch = [record for replay in replays for record in replay.readings(time)]
            batch += [record for replay in replays for record in replay.samples(time)]
            tables.commit(sorted(batch, key=time_of))
        # Records about processes come after all their samples, because ended processes are
        # forgotten.
        tables.commit(
            sorted((record for replay in replays for record in replay.occasions()), key=time_of)
        )
        tables.commit([_job_ended(infos, end_ns)])
        tables.finish()
    except sqlite3.Error as error:
        connection.close()
        raise database.unwritable(path, error) from error


def _job_started(infos: Sequence[RunInfo], name: str, started_ns: int) -> RunStarted:
    """Return the job's start, with the first node's words for what else is known of it."""
    words = {field: getattr(infos[0], field) for field in RunStarted.__struct_fields__} | {
        "id": name,
        "host": f"{len(infos)} nodes",
        "started_ns": started_ns,
        "recorder": Identity(infos[0].recorder.pid, 0),
        "control_socket": "",
    }
    return RunStarted(**words)


def _job_ended(infos: Sequence[RunInfo], end_ns: int) -> records.RunEnded:
    """Return the job's end: that of the first node that did not end well, else of the first."""
    badly = [info for info in infos if info.exit_code or info.exit_signal]
    info = (badly or infos)[0]
    return records.RunEnded(end_ns, info.why_ended or "stopped", info.exit_code, info.exit_signal)


def _descriptions(readers: Sequence[RunReader]) -> dict[Frame, FrameDescription]:
    """Return what is known of each frame; the first file's counts if several have it."""
    descriptions: dict[Frame, FrameDescription] = {}
    for reader in readers:
        for row in reader.frames.values():
            switched_off = row.id in reader.entities.without_gradients
            description = FrameDescription(
                row.module_path, row.is_library, row.source, switched_off
            )
            descriptions.setdefault(Frame(row.function, row.file, row.line), description)
    return descriptions


class _Replay:
    """The records of the run file of one node.

    Values of the whole host, or of a device, are attributed to this node. Processes keep their PIDs
    and get new start times, as processes of two nodes may agree in both.
    """

    def __init__(self, reader: RunReader, node: JoinedNode) -> None:
        self._reader, self._number, self._label, self._ahead_ns = (
            reader,
            node.number,
            node.host,
            node.offset_ns,
        )
        self.started_ns = reader.info.started_ns - self._ahead_ns
        self.end_ns = reader.info.end_ns - self._ahead_ns
        self._recordings: defaultdict[int, list[RecordingRow]] = defaultdict(list)
        for row in reader.recordings():
            self._recordings[row.process].append(row)

    def _identity(self, process: int) -> Identity:
        """Return the identity of a process among those of all nodes."""
        row = self._reader.processes[process]
        return Identity(row.pid, row.start_ticks + (self._number << _NODE_BIT))

    def _moved(self, part: Part) -> Part:
        return self._record(type(part), part)

    def _record(
        self,
        kind: type[Part],
        row: msgspec.Struct,
        process: int | None = None,
        **others: object,
    ) -> Part:
        """Return a row as a record of this kind, with its times by the first node's clock.

        The fields of one name are those of the row, unless they are among ``others``.
        """
        values = {name: getattr(row, name) for name in kind.__struct_fields__ if hasattr(row, name)}
        for name in _TIMES & values.keys():
            if values[name]:  # a failed window has no times, and a hang may not have ended
                values[name] = max(values[name] - self._ahead_ns, 0)
        if process is not None:
            values["identity"] = self._identity(process)
        return kind(**(values | others))

    def _device(self, name: str | None) -> str:
        return self._label if name is None else f"{name} on {self._label}"

    def members(self) -> Iterator[Record]:
        """Yield all processes, parents first, and the GPUs."""
        placements = self._reader.placements()
        for row in sorted(self._reader.processes.values(), key=lambda row: row.id):
            place, placement = placements.get(row.id), None
            if place is not None and row.rank is not None:
                placement = records.Placement(
                    row.rank, place.local_rank, self._number, place.world_size
                )
            yield self._record(
                records.ProcessSeen,
                row,
                row.id,
                parent=None if row.parent is None else self._identity(row.parent),
                at_ns=row.seen_ns - self._ahead_ns,
                placement=placement,
            )
        for gpu in self._reader.devices():
            name = self._device(gpu.name)
            yield self._record(records.DeviceSeen, gpu, at_ns=self.started_ns, name=name)

    def occasions(self) -> Iterator[Record]:
        """Yield what happened once: ends of processes, events, gaps, windows, hangs."""
        for row in self._reader.processes.values():
            if row.ended_ns is not None:
                at_ns = row.ended_ns - self._ahead_ns
                yield self._record(records.ProcessEnded, row, row.id, at_ns=at_ns)
        for event in self._reader.events():
            text = f"{self._label}: {event.text}" if event.process is None else event.text
            yield self._record(records.EventHappened, event, event.process, text=text)
        for gap in self._reader.gaps():
            yield self._record(records.GapFound, gap, gap.process)
        for window in self._reader.windows():
            yield self._window(window)
        for hang in self._reader.hangs():
            yield self._record(records.HangFound, hang, text=f"{self._label}: {hang.text}")

    def readings(self, time: TimeRange) -> Iterator[Record]:
        at: defaultdict[int, list[Point]] = defaultdict(list)
        for series in self._reader.list_series():
            identity = None if series.process is None else self._identity(series.process)
            device = (
                self._device(series.device)
                if identity is None or series.device is not None
                else None
            )
            for point in self._reader.points(series.id, time.moved(self._ahead_ns)):
                value = Point(series.name, point.value, identity, series.os_tid, device)
                at[point.at_ns - self._ahead_ns].append(value)
        for at_ns, points in at.items():
            yield records.PointsTaken(at_ns, tuple(points))

    def samples(self, time: TimeRange) -> Iterator[Record]:
        """Yield the recordings that start in a range of time.

        Each has the intervals that start before the next recording.
        """
        threads: defaultdict[int, list[ThreadRow]] = defaultdict(list)
        for thread in self._reader.threads.values():
            threads[thread.process].append(thread)
        for process, rows in self._recordings.items():
            starts = [row.start_ns - self._ahead_ns for row in rows]
            for at in range(*(bisect.bisect_left(starts, at_ns) for at_ns in time)):
                begun = TimeRange(
                    rows[at].start_ns if at else EVER.from_ns,
                    rows[at + 1].start_ns if at + 1 < len(rows) else EVER.to_ns,
                )
                yield self._recording(rows[at], threads[process], begun)

    def _recording(
        self, row: RecordingRow, threads: list[ThreadRow], begun: TimeRange
    ) -> records.RecordingTaken:
        places: dict[int, int] = {}
        by_thread: defaultdict[int, list[Interval]] = defaultdict(list)
        for one in self._reader.intervals(begun, [thread.id for thread in threads]):
            place = places.setdefault(one.stack, len(places))
            by_thread[one.thread].append(
                Interval(one.start_ns - self._ahead_ns, one.duration_ns, place, one.samples)
            )
        frames, seen = (
            map(self._reader.frames_of, places),
            [thread for thread in threads if thread.id in by_thread],
        )
        return self._record(
            records.RecordingTaken,
            row,
            row.process,
            stacks=tuple(
                tuple(Frame(one.function, one.file, one.line) for one in stack) for stack in frames
            ),
            threads=tuple(
                ThreadTimeline(one.os_tid, one.name, one.is_main, tuple(by_thread[one.id]))
                for one in seen
            ),
        )

    def _window(self, row: WindowRow) -> records.WindowTaken:
        return self._record(
            records.WindowTaken,
            row,
            row.process,
            at_ns=max(row.end_ns, row.asked_ns) - self._ahead_ns,
            steps=tuple(map(self._moved, self._reader.window_steps(row.id))),
            gpus=tuple(self._reader.window_gpus(row.id)),
            gaps=tuple(map(self._moved, self._reader.host_gaps(row.id))),
            waits=tuple(map(self._moved, self._reader.window_waits(row.id))),
            operators=tuple(self._reader.operators(row.id)),
            trace=self._reader.window_trace(row.id),
        )
