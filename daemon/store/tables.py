"""Puts records into the tables of a run file: SQL and ids.

What is seen again and again (processes, threads, series, frames, stacks) is written once, then an integer. A run may go
on for weeks, with new workers every few seconds and functions that are made up as it goes. So the memory for ids is
bounded: processes that ended are forgotten soon, the rest when much is newer. What was forgotten is found again in the
file.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.database import insert, set_meta
from profd.daemon.store.findings import lose_analysis, say_gone, write_findings
from profd.daemon.store.pointrollups import PointRollups
from profd.daemon.store.records import DescribeFrame, Frame, Identity, Point, ProcessSeen, Record, RecordingTaken, Stack
from profd.daemon.store.stackrollups import IntervalColumns, StackRollups

OUTPUT_LIMIT_BYTES = 4 << 20


class Tables:
    """The connection, with the ids of what is in the file."""

    def __init__(self, connection: sqlite3.Connection, describe_frame: DescribeFrame) -> None:
        self._connection = connection
        self._ids = Interning(connection, describe_frame)
        self._output_bytes = 0
        self.written_ns = 0  # up to when the run is written
        self._stack_sums = StackRollups(connection, 0)
        self._point_sums = PointRollups(connection, 0)

    def begin(self, started: records.RunStarted) -> None:
        """Write what is known at the start, so that a file is never without it."""
        values = msgspec.structs.asdict(started)
        for name in ("target", "recorder", "command", "versions", "options"):
            values[name] = msgspec.json.encode(values[name]).decode()
        with self._transaction():
            set_meta(self._connection, **values, state="live", written_ns=started.started_ns)
        self.written_ns = started.started_ns
        self._stack_sums = StackRollups(self._connection, started.started_ns)
        self._point_sums = PointRollups(self._connection, started.started_ns)

    def commit(self, batch: Sequence[Record]) -> None:
        """Write a batch in one transaction: whole, or after an error nothing of it, and it can be written again."""
        if not batch:
            return
        with self._transaction():
            write = self._write  # made anew at each access
            for record in batch:
                write(record)
            # A recording is written after counters that are younger than its end.
            self.written_ns = max(self.written_ns, *map(records.time_of, batch))
            set_meta(self._connection, written_ns=self.written_ns)
            self._point_sums.settle(self.written_ns)
            self._stack_sums.settle(self.written_ns)
        self._ids.forget(self.written_ns)

    def finish(self) -> None:
        """Complete the sums in one transaction; after an error it can be called again."""
        with self._transaction():
            self._point_sums.finish()
            self._stack_sums.finish()

    def fold(self) -> None:
        """Fold the write-ahead log into the one file; after an error it can be called again."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file; a log that is not folded in stays beside it, and the run is complete so, too."""
        # Out of WAL mode by a journal in memory: one on the disk that a fault leaves there has to be rolled back before
        # anyone can read, and readers may not write. All that is written by it is the header.
        with contextlib.suppress(sqlite3.Error, MemoryError):
            self._connection.execute("PRAGMA journal_mode = MEMORY")
        with contextlib.suppress(sqlite3.Error, MemoryError):
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Have what is written in the file whole or not at all, and memory as the file is."""
        if self._connection.in_transaction:  # without memory not even going back works
            self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN IMMEDIATE")
        self._point_sums.begin()
        self._stack_sums.begin()
        before = self._output_bytes, self.written_ns
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._output_bytes, self.written_ns = before
            self._point_sums.undo()
            self._stack_sums.undo()
            self._ids.forget_all()
            if self._connection.in_transaction:  # SQLite has ended it itself after some errors
                self._connection.execute("ROLLBACK")
            raise

    @functools.singledispatchmethod
    def _write(self, record: Record) -> None:
        raise TypeError(f"no table takes {type(record).__name__}")

    @_write.register
    def _(self, record: records.ProcessSeen) -> None:
        values = {
            "parent": self._ids.process(record.parent),
            "command": msgspec.json.encode(record.command).decode(),
            **{name: getattr(record, name) for name in ("role", "rank", "ordinal", "python")},
        }
        known = self._ids.process(record.identity)
        if known is None:
            identity = record.identity._asdict()
            known = insert(self._connection, "process", {**identity, **values, "seen_ns": record.at_ns})
        else:
            changes = ", ".join(f"{name} = ?" for name in values)
            self._connection.execute(f"UPDATE process SET {changes} WHERE id = ?", (*values.values(), known))
        if record.placement is not None:
            _, *place = msgspec.structs.astuple(record.placement)
            self._connection.execute("INSERT OR REPLACE INTO placement VALUES (?,?,?,?,?)", (known, *place))

    @_write.register
    def _(self, record: records.ProcessEnded) -> None:
        self._connection.execute(
            "UPDATE process SET ended_ns = ?, exit_code = ?, exit_signal = ? WHERE id = ?",
            (record.at_ns, record.exit_code, record.exit_signal, self._ids.process(record.identity)),
        )
        self._ids.end(record.identity, record.at_ns)

    @_write.register
    def _(self, record: records.RecordingTaken) -> None:
        """Write a recording, and its intervals into the table and the sums."""
        process = self._process_id(record.identity, record.start_ns)
        values = {name: getattr(record, name) for name in RecordingTaken.__struct_fields__[1:-2]}
        insert(self._connection, "recording", {"process": process, **values})
        stacks = self._ids.stacks(record.stacks)
        intervals: list[IntervalColumns] = []
        for timeline in record.threads:
            thread = self._ids.thread(record.identity, timeline.os_tid, timeline.name, is_main=timeline.is_main)
            intervals += [(i.start_ns, thread, i.duration_ns, stacks[i.stack], i.samples) for i in timeline.intervals]
        written = self._connection.executemany("INSERT OR IGNORE INTO interval VALUES (?,?,?,?,?)", intervals).rowcount
        if written < len(intervals):  # of those of a thread that start together the table takes the first
            intervals = sorted({row[:2]: row for row in reversed(intervals)}.values())
        self._stack_sums.recorded(process, record.start_ns, record.end_ns, intervals)

    @_write.register
    def _(self, record: records.PointsTaken) -> None:
        for identity in {point.identity for point in record.points if point.identity}:
            self._process_id(identity, record.at_ns)
        at_ns, id_of = record.at_ns, self._ids.series
        rows = [(id_of(point), at_ns if point.at_ns is None else point.at_ns, point.value) for point in record.points]
        self._connection.executemany("INSERT OR IGNORE INTO point (series, at_ns, value) VALUES (?,?,?)", rows)
        self._point_sums.add(rows)

    @_write.register
    def _(self, record: records.DeviceSeen) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO device (name, number, model, uuid, memory_bytes) VALUES (?,?,?,?,?)",
            (record.name, record.index, record.model, record.uuid, record.memory_bytes),
        )

    @_write.register
    def _(self, record: records.EventHappened) -> None:
        process = self._ids.process(record.identity)
        values = {"at_ns": record.at_ns, "kind": record.kind, "process": process, "text": record.text}
        insert(self._connection, "event", values)

    @_write.register
    def _(self, record: records.WindowTaken) -> None:
        names = ("source", "asked_ns", "error", "start_ns", "end_ns", "trace_bytes", "trace")
        values = {name: getattr(record, name) for name in names}
        values["process"] = self._process_id(record.identity, record.at_ns)
        for name in ("busy_ns", "idle_ns", "overlap_ns"):
            values[f"device_{name}"] = sum(getattr(gpu, name) for gpu in record.gpus) if record.gpus else None
        window = insert(self._connection, "window", values)
        tables = {"window_step": record.steps, "operator": record.operators, "window_wait": record.waits}
        for table, rows in {**tables, "window_gpu": record.gpus, "host_gap": record.gaps}.items():
            values_of = [(window, *msgspec.structs.astuple(row)) for row in rows]
            if values_of:
                sql = f"INSERT OR IGNORE INTO {table} VALUES (?{',?' * (len(values_of[0]) - 1)})"
                self._connection.executemany(sql, values_of)

    @_write.register
    def _(self, record: records.HangFound) -> None:
        report = msgspec.json.encode(record.report).decode()
        values = {"at_ns": record.at_ns, "since_ns": record.since_ns, "text": record.text}
        insert(self._connection, "hang", {**values, "cause": record.report.cause, "report": report})

    @_write.register
    def _(self, record: records.HangEnded) -> None:
        self._connection.execute("UPDATE hang SET ended_ns = ? WHERE at_ns = ?", (record.at_ns, record.hang_ns))

    @_write.register
    def _(self, record: records.FindingsTaken) -> None:
        write_findings(self._connection, record)

    @_write.register
    def _(self, record: records.AnalysisLost) -> None:
        lose_analysis(self._connection, record.at_ns)

    @_write.register
    def _(self, record: records.OutputWritten) -> None:
        insert(self._connection, "output", {"at_ns": record.at_ns, "data": record.data})
        self._output_bytes += len(record.data)
        while self._output_bytes > OUTPUT_LIMIT_BYTES:
            sql = "SELECT id, length(data) FROM output ORDER BY id LIMIT 1"
            oldest, length = self._connection.execute(sql).fetchone()
            self._connection.execute("DELETE FROM output WHERE id = ?", (oldest,))
            self._output_bytes -= length

    @_write.register
    def _(self, record: records.RunEnded) -> None:
        say_gone(self._connection, record.at_ns)
        exit_ = {"why_ended": record.why, "exit_code": record.exit_code, "exit_signal": record.exit_signal}
        set_meta(self._connection, state="ended", ended_ns=record.at_ns, **exit_)

    def _process_id(self, identity: Identity, at_ns: int) -> int:
        """Return the id of a process; of one whose first record was dropped, little is known until it is seen again."""
        while (known := self._ids.process(identity)) is None:
            self._write(ProcessSeen(identity, None, (), "helper", None, None, None, at_ns))
        return known


REMEMBERED_NS = 30 * SECOND_NS  # recordings and counters of a process that has ended come in for some seconds more
# Some hundred bytes each, and of both generations of them. A training has some thousand stacks, and few at a time.
FRAMES_HELD = 1024
STACKS_HELD = 2048
WHOLE_HELD = 512
# Of one process: workers that come and go leave threads behind in the one that started them.
THREADS_HELD = 256
SERIES_HELD = 512

Key = TypeVar("Key", bound=Hashable)


class Recent(Generic[Key]):
    """Ids of what was asked for lately: of the last ``most`` keys surely, of twice as many at most."""

    __slots__ = ("_elder", "_most", "_young")

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[Key, int] = {}
        self._elder: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._elder)

    def get(self, key: Key, look_up: Callable[[], int]) -> int:
        """Return the id of a key, by ``look_up`` where it is not held."""
        found = self._young.get(key)
        if found is None:
            found = self._elder.pop(key, None)
            if found is None:
                found = look_up()
            if len(self._young) >= self._most:
                self._young, self._elder = {}, self._young
            self._young[key] = found
        return found


class Interning:
    """Finds the ids in the file behind a connection, and gives one to what has none."""

    def __init__(self, connection: sqlite3.Connection, describe_frame: DescribeFrame) -> None:
        self._connection = connection
        self._describe_frame = describe_frame
        self._ended: deque[tuple[int, Identity]] = deque()
        self.forget_all()

    def forget_all(self) -> None:
        """Forget every id, as after a transaction that failed: the file may not have them."""
        self._members: dict[Identity, _Member] = {}
        self._shared = _Member(None)  # the machine and its devices: series of no process
        self._frames: Recent[Frame] = Recent(FRAMES_HELD)
        self._stacks: Recent[tuple[int, int]] = Recent(STACKS_HELD)
        self._whole: dict[Stack, int] = {}
        self._newest_stack = -1

    def __len__(self) -> int:
        members = (self._shared, *self._members.values())
        of_members = sum(1 + len(member.threads) + len(member.series) for member in members)
        return len(self._frames) + len(self._stacks) + len(self._whole) + len(self._ended) + of_members

    def process(self, identity: Identity | None) -> int | None:
        member = self._member(identity) if identity else None
        return member.process if member else None

    def end(self, identity: Identity, at_ns: int) -> None:
        """Forget a process that has ended, and all that belongs to it, a while from now."""
        self._ended.append((at_ns, identity))

    def forget(self, now_ns: int) -> None:
        while self._ended and self._ended[0][0] + REMEMBERED_NS < now_ns:
            self._members.pop(self._ended.popleft()[1], None)

    def thread(self, identity: Identity, os_tid: int, name: str, *, is_main: bool) -> int:
        """Return the id of a thread; raises LookupError where the file does not know the process.

        A thread whose name is not known yet, "", is the one that has a name before or later.
        """
        member = self._known(identity)

        def look_up() -> int:
            row = {"process": member.process, "os_tid": os_tid, "is_main": is_main}
            if not name:
                return self._find_or_add("thread", row, lambda: {"name": ""})
            nameless = self._find("thread", {**row, "name": ""})
            if nameless is None or self._find("thread", {**row, "name": name}) is not None:
                return self._find_or_add("thread", {**row, "name": name})
            self._connection.execute("UPDATE thread SET name = ? WHERE id = ?", (name, nameless))
            return nameless

        return member.threads.get((os_tid, name), look_up)

    def series(self, point: Point) -> int:
        """Return the id of a point's series; raises LookupError where the file does not know the process."""
        member = self._known(point.identity) if point.identity else self._shared

        def look_up() -> int:
            named = {"name": point.name, "os_tid": point.os_tid, "device": point.device}
            return self._find_or_add("series", {"process": member.process, **named})

        return member.series.get((point.name, point.os_tid, point.device), look_up)

    def stacks(self, stacks: Sequence[Stack]) -> list[int]:
        """Return the ids of stacks; 0 is the empty one. A new one is looked up from where it leaves the one before."""
        found, before, path = [], Stack(), [0]
        for frames in stacks:
            known = self._whole.get(frames)
            if known is None:
                same = 0
                for mine, theirs in zip(frames, before, strict=False):
                    if mine is not theirs:
                        break
                    same += 1
                del path[same + 1 :]
                for frame in frames[same:]:
                    key = path[-1], self._frame(frame)
                    path.append(self._stacks.get(key, functools.partial(self._node, *key)))
                before, known = frames, path[-1]
                if len(self._whole) >= WHOLE_HELD:
                    self._whole.clear()
                self._whole[frames] = known
            found.append(known)
        return found

    def _node(self, parent: int, frame: int) -> int:
        row = {"parent": parent, "frame": frame}
        # Nothing can be called yet from the stack that was added last.
        found = None if parent == self._newest_stack else self._find("stack", row)
        if found is None:
            found = self._newest_stack = insert(self._connection, "stack", row)
        return found

    def _frame(self, frame: Frame) -> int:
        def look_up() -> int:
            found = self._find("frame", frame._asdict())
            if found is not None:
                return found
            more = msgspec.structs.asdict(self._describe_frame(frame))
            is_without_gradients = more.pop("is_without_gradients")
            added = insert(self._connection, "frame", {**frame._asdict(), **more})
            if is_without_gradients:
                insert(self._connection, "frame_without_gradients", {"id": added})
            return added

        return self._frames.get(frame, look_up)

    def _member(self, identity: Identity) -> _Member | None:
        member = self._members.get(identity)
        if member is None:
            sql = "SELECT id, ended_ns FROM process WHERE pid = ? AND start_ticks = ?"
            found = self._connection.execute(sql, identity).fetchone()
            if found is not None:
                member = self._members[identity] = _Member(int(found[0]))
                if found[1] is not None:  # it goes with the one that ended last
                    self.end(identity, self._ended[-1][0] if self._ended else 0)
        return member

    def _known(self, identity: Identity) -> _Member:
        if (member := self._member(identity)) is None:
            raise LookupError(f"process {identity.pid} is not in the file")
        return member

    def _find_or_add(self, table: str, row: Mapping[str, object], more: Callable[[], dict[str, object]] = dict) -> int:
        """Return the id of the row that has these values; where there is none, add it with ``more`` beside them."""
        found = self._find(table, row)
        return insert(self._connection, table, {**row, **more()}) if found is None else found

    def _find(self, table: str, row: Mapping[str, object]) -> int | None:
        where = " AND ".join(f"{name} IS ?" for name in row)
        found = self._connection.execute(f"SELECT id FROM {table} WHERE {where}", tuple(row.values())).fetchone()
        return int(found[0]) if found else None


@dataclass(slots=True)
class _Member:
    """A process, with its threads by the kernel's id and name, and its series by name, thread and device."""

    process: int | None
    threads: Recent[tuple[int, str]] = field(default_factory=lambda: Recent(THREADS_HELD))
    series: Recent[tuple[str, int | None, str | None]] = field(default_factory=lambda: Recent(SERIES_HELD))
