"""Merges the run files of a job's nodes into one.

It copies their rows, with new ids and with times by the first node's clock. The caller says by how
much each node's clock is ahead.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from profd.daemon.clock import MINUTE_NS
from profd.daemon.store import database
from profd.daemon.store.pointrollups import PointRollups
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity, RunStarted
from profd.daemon.store.rows import RunInfo, WindowRow
from profd.daemon.store.stackrollups import IntervalColumns, StackRollups

# The bits of a process's start time from here up are the number of its node in a joined file.
_NODE_BIT = 40
_TIMES = frozenset({"asked_ns", "at_ns", "end_ns", "ended_ns", "seen_ns", "since_ns", "start_ns"})
_SHARED = {"frame": ("function", "file", "line"), "stack": ("parent", "frame")}
"""The tables whose rows nodes have in common, with the columns that tell these rows apart."""


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
    connection = database.create(path)
    shared: dict[tuple[object, ...], int] = {}
    copies = [
        _Copy(reader, node, connection, shared) for reader, node in zip(readers, nodes, strict=True)
    ]
    started_ns = min(copy.moved_ns(copy.reader.info.started_ns) for copy in copies)
    end_ns = max(copy.moved_ns(copy.reader.info.end_ns) for copy in copies)
    infos = [reader.info for reader in readers]
    try:
        with database.transaction(connection):
            about = _about_job(infos, name, started_ns, end_ns)
            database.set_meta(connection, **about, nodes=tuple(nodes))
            for copy in copies:
                copy.add_entities()
            # What happened to several nodes is read in the order of writing.
            occasions = [one for copy in copies for one in copy.occasions()]
            for _, add in sorted(occasions, key=itemgetter(0)):
                add()
        # The sums of stacks need the points of all devices.
        for copy in copies:
            copy.add_points(started_ns)
        for copy in copies:
            copy.add_intervals(started_ns)
    except sqlite3.Error as error:
        raise database.unwritable(path, error) from error
    finally:
        connection.close()


def _about_job(
    infos: Sequence[RunInfo], name: str, started_ns: int, end_ns: int
) -> dict[str, object]:
    """Return what is known of the job.

    Its end is that of the first node that did not end well, else of the first. The first node's
    words stand for all else.
    """
    badly = [info for info in infos if info.exit_code or info.exit_signal]
    ended = (badly or infos)[0]
    return {field: getattr(infos[0], field) for field in RunStarted.__struct_fields__} | {
        "id": name,
        "host": f"{len(infos)} nodes",
        "started_ns": started_ns,
        "recorder": Identity(infos[0].recorder.pid, 0),
        "control_socket": "",
        "state": "ended",
        "written_ns": end_ns,
        "ended_ns": end_ns,
        "why_ended": ended.why_ended or "stopped",
        "exit_code": ended.exit_code,
        "exit_signal": ended.exit_signal,
    }


class _Copy:
    """The rows of the run file of one node, on their way into the joined file.

    Values of the whole host, or of a device, are attributed to this node. Processes keep their PIDs
    and get new start times, as processes of two nodes may agree in both.
    """

    def __init__(
        self,
        reader: RunReader,
        node: JoinedNode,
        connection: sqlite3.Connection,
        shared: dict[tuple[object, ...], int],
    ) -> None:
        """Copy nothing yet; ``shared`` are the ids of rows that the nodes have in common."""
        self.reader, self._node, self._connection = reader, node, connection
        self._shared = shared
        self._ids: dict[str, dict[Any, Any]] = {
            table: {None: None, 0: 0}
            for table in ("process", "thread", "frame", "stack", "series", "window")
        }
        """By table the ids in the joined file; other tables refer to them by the table's name."""

    def moved_ns(self, at_ns: int) -> int:
        """Return a time of this node by the clock of the first."""
        return at_ns - self._node.offset_ns

    def add(self, table: str, row: msgspec.Struct, **others: object) -> None:
        """Add a row, with ``others`` in place of its own columns, and remember its id.

        What the nodes have in common is added once. Raises RunUnreadable if the row names another
        one that is not there.
        """
        values = database.row_of(row, table)
        for name in _TIMES & values.keys():
            if values[name]:  # a failed window has no times, and a hang may not have ended
                values[name] = max(self.moved_ns(values[name]), 0)
        for name in self._ids.keys() & values.keys():
            if values[name] not in self._ids[name]:
                why = f"a row of {table} names a {name} that is not there"
                raise database.unreadable(self.reader.path, why)
            values[name] = self._ids[name][values[name]]
        values |= others
        old = values.pop("id", None)
        key = (table, *(values[name] for name in _SHARED.get(table, ())))
        new = self._shared.get(key)
        if new is None:
            new = database.insert(self._connection, table, values)
            if table in _SHARED:
                self._shared[key] = new
            if table == "frame" and old in self.reader.entities.without_gradients:
                database.insert(self._connection, "frame_without_gradients", {"id": new})
        if table in self._ids:
            self._ids[table][old] = new

    def add_entities(self) -> None:
        """Add what other rows refer to, and the GPUs."""
        reader, processes = self.reader, self._ids["process"]
        for process in sorted(reader.processes.values(), key=lambda row: row.id):
            start_ticks = process.start_ticks + (self._node.number << _NODE_BIT)
            parent = processes.get(process.parent)
            self.add("process", process, start_ticks=start_ticks, parent=parent)
        for place in reader.placements().values():
            self.add("placement", place, node=self._node.number)
        for thread in reader.threads.values():
            self.add("thread", thread)
        for frame in reader.frames.values():
            self.add("frame", frame)
        for stack in sorted(reader.stacks.values(), key=lambda row: row.id):
            self.add("stack", stack, parent=self._ids["stack"][stack.parent])
        for gpu in reader.devices():
            self.add("device", gpu, name=self._device(gpu.name))
        for series in reader.list_series():
            is_of_host = series.process is None or series.device is not None
            device = self._device(series.device) if is_of_host else None
            self.add("series", series, device=device)

    def _device(self, name: str | None) -> str:
        return self._node.host if name is None else f"{name} on {self._node.host}"

    def occasions(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield what happened once, and the recordings: the time, and what adds the row."""
        reader, host, moved_ns = self.reader, self._node.host, self.moved_ns
        for recording in reader.recordings():
            yield moved_ns(recording.end_ns), partial(self.add, "recording", recording)
        for event in reader.events():
            text = f"{host}: {event.text}" if event.process is None else event.text
            yield moved_ns(event.at_ns), partial(self.add, "event", event, text=text)
        for gap in reader.gaps():
            yield moved_ns(gap.end_ns), partial(self.add, "gap", gap)
        for window in reader.windows():
            end_ns = max(window.end_ns, window.asked_ns)
            yield moved_ns(end_ns), partial(self._add_window, window)
        for hang in reader.hangs():
            others = {"text": f"{host}: {hang.text}", "cause": hang.report.cause}
            yield moved_ns(hang.at_ns), partial(self.add, "hang", hang, **others)

    def _add_window(self, window: WindowRow) -> None:
        reader = self.reader
        self.add("window", window, trace=reader.window_trace(window.id))
        parts: Mapping[str, Sequence[msgspec.Struct]] = {
            "window_step": reader.window_steps(window.id),
            "window_gpu": reader.window_gpus(window.id),
            "window_stream": reader.window_streams(window.id),
            "host_gap": reader.host_gaps(window.id),
            "window_wait": reader.window_waits(window.id),
            "operator": reader.operators(window.id),
        }
        for table, rows in parts.items():
            for row in rows:
                self.add(table, row, window=self._ids["window"][window.id])

    def add_points(self, started_ns: int) -> None:
        """Add the points, series by series, and their sums."""
        sums = PointRollups(self._connection, started_ns)
        for series in self.reader.list_series():
            points = [
                (self._ids["series"][series.id], self.moved_ns(point.at_ns), point.value)
                for point in self.reader.points(series.id)
            ]
            with database.transaction(self._connection):
                self._connection.executemany("INSERT INTO point VALUES (?,?,?)", points)
                sums.add(points)
                sums.begin()
                sums.finish()

    def add_intervals(self, started_ns: int) -> None:
        """Add the intervals, minute by minute, and their sums."""
        sums = StackRollups(self._connection, started_ns)
        threads, stacks = self._ids["thread"], self._ids["stack"]

        for minute, rows in itertools.groupby(
            self.reader.intervals(),
            lambda row: (self.moved_ns(row.start_ns) - started_ns) // MINUTE_NS,
        ):
            of_process: defaultdict[int, list[IntervalColumns]] = defaultdict(list)
            for row in rows:
                of_process[self.reader.threads[row.thread].process].append(
                    (
                        self.moved_ns(row.start_ns),
                        threads[row.thread],
                        row.duration_ns,
                        stacks[row.stack],
                        row.samples,
                    )
                )
            begin_ns = started_ns + minute * MINUTE_NS
            with database.transaction(self._connection):
                for process, intervals in of_process.items():
                    self._connection.executemany(
                        "INSERT INTO interval VALUES (?,?,?,?,?)", intervals
                    )
                    sums.recorded(
                        self._ids["process"][process], begin_ns, begin_ns + MINUTE_NS, intervals
                    )
                sums.finish()
