"""Puts records into the tables of a run file: SQL and ids.

What is seen repeatedly (processes, threads, series, frames, stacks) is written once, and then
referred to by an integer. A run may go on for weeks, with new workers every few seconds and
functions that are created as it goes. So the memory for ids is bounded: processes that ended are
forgotten soon, other ids once many are newer. What was forgotten is found again in the file.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.store import records
from profd.daemon.store.database import insert, set_meta
from profd.daemon.store.findings import lose_analysis, say_gone, write_findings
from profd.daemon.store.interning import Interning
from profd.daemon.store.pointrollups import PointRollups
from profd.daemon.store.records import DescribeFrame, Identity, ProcessSeen, Record, RecordingTaken
from profd.daemon.store.stackrollups import IntervalColumns, StackRollups

OUTPUT_LIMIT_BYTES = 4 << 20


class Tables:
    """The connection, with the ids of what is in the file."""

    def __init__(self, connection: sqlite3.Connection, describe_frame: DescribeFrame) -> None:
        self._connection = connection
        self._ids = Interning(connection, describe_frame)
        self._output_bytes = 0
        self.written_ns = 0  # the time up to which the run is written
        self._stack_sums = StackRollups(connection, 0)
        self._point_sums = PointRollups(connection, 0)

    def begin(self, started: records.RunStarted) -> None:
        """Write what is known at the start, so that no file is ever without it."""
        values = msgspec.structs.asdict(started)
        for name in records.AS_JSON:
            values[name] = msgspec.json.encode(values[name]).decode()
        with self._transaction():
            set_meta(self._connection, **values, state="live", written_ns=started.started_ns)
        self.written_ns = started.started_ns
        self._stack_sums = StackRollups(self._connection, started.started_ns)
        self._point_sums = PointRollups(self._connection, started.started_ns)

    def commit(self, batch: Sequence[Record]) -> None:
        """Write a batch in one transaction.

        It is written as a whole. After an error nothing of it is written, and it can be written
        again.
        """
        if not batch:
            return
        with self._transaction():
            write = self._write  # looked up once, because each access would create it anew
            for record in batch:
                write(record)
            # Counters that are newer than the end of a recording may be written before it.
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
        """Fold the write-ahead log into the file; after an error it can be called again."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file.

        A log that is not folded in stays beside the file; the run is complete nevertheless.
        """
        # WAL mode is left with a journal in memory. A journal on the disk that survives a fault has
        # to be rolled back before anyone can read, and readers may not write. It only serves to
        # write the header.
        with contextlib.suppress(sqlite3.Error, MemoryError):
            self._connection.execute("PRAGMA journal_mode = MEMORY")
        with contextlib.suppress(sqlite3.Error, MemoryError):
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write to the file all or nothing, and keep the memory consistent with it."""
        if self._connection.in_transaction:  # without memory, even the rollback had failed
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
            if self._connection.in_transaction:  # after some errors SQLite itself has ended it
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
            known = insert(
                self._connection, "process", {**identity, **values, "seen_ns": record.at_ns}
            )
        else:
            changes = ", ".join(f"{name} = ?" for name in values)
            self._connection.execute(
                f"UPDATE process SET {changes} WHERE id = ?", (*values.values(), known)
            )
        if record.placement is not None:
            _, *place = msgspec.structs.astuple(record.placement)
            self._connection.execute(
                "INSERT OR REPLACE INTO placement VALUES (?,?,?,?,?)", (known, *place)
            )

    @_write.register
    def _(self, record: records.ProcessEnded) -> None:
        self._connection.execute(
            "UPDATE process SET ended_ns = ?, exit_code = ?, exit_signal = ? WHERE id = ?",
            (
                record.at_ns,
                record.exit_code,
                record.exit_signal,
                self._ids.process(record.identity),
            ),
        )
        self._ids.end(record.identity, record.at_ns)

    @_write.register
    def _(self, record: records.RecordingTaken) -> None:
        """Write a recording, and its intervals into the table and the sums."""
        process = self._process_id(record.identity, record.start_ns)
        columns = RecordingTaken.__struct_fields__[1:-2]
        self._insert("recording", record, *columns, process=process)
        stacks = self._ids.stacks(record.stacks)
        intervals: list[IntervalColumns] = []
        for timeline in record.threads:
            thread = self._ids.thread(
                record.identity, timeline.os_tid, timeline.name, is_main=timeline.is_main
            )
            intervals += [
                (i.start_ns, thread, i.duration_ns, stacks[i.stack], i.samples)
                for i in timeline.intervals
            ]
        written = self._connection.executemany(
            "INSERT OR IGNORE INTO interval VALUES (?,?,?,?,?)", intervals
        ).rowcount
        if written < len(
            intervals
        ):  # of those of a thread that start together the table takes the first
            intervals = sorted({row[:2]: row for row in reversed(intervals)}.values())
        self._stack_sums.recorded(process, record.start_ns, record.end_ns, intervals)

    @_write.register
    def _(self, record: records.GapFound) -> None:
        process = self._process_id(record.identity, record.start_ns)
        self._insert("gap", record, "start_ns", "end_ns", "reason", "text", process=process)

    @_write.register
    def _(self, record: records.PointsTaken) -> None:
        for identity in {point.identity for point in record.points if point.identity}:
            self._process_id(identity, record.at_ns)
        at_ns, id_of = record.at_ns, self._ids.series
        rows = [
            (id_of(point), at_ns if point.at_ns is None else point.at_ns, point.value)
            for point in record.points
        ]
        self._connection.executemany(
            "INSERT OR IGNORE INTO point (series, at_ns, value) VALUES (?,?,?)", rows
        )
        self._point_sums.add(rows)

    @_write.register
    def _(self, record: records.DeviceSeen) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO device (name, number, model, uuid, memory_bytes) VALUES "
            "(?,?,?,?,?)",
            (record.name, record.index, record.model, record.uuid, record.memory_bytes),
        )

    @_write.register
    def _(self, record: records.EventHappened) -> None:
        process = self._ids.process(record.identity)
        self._insert("event", record, "at_ns", "kind", "text", process=process)

    @_write.register
    def _(self, record: records.WindowTaken) -> None:
        names = ("source", "asked_ns", "error", "start_ns", "end_ns", "trace_bytes", "trace")
        of_devices = {
            f"device_{name}": sum(getattr(gpu, name) for gpu in record.gpus)
            for name in ("busy_ns", "idle_ns", "overlap_ns")
            if record.gpus
        }
        process = self._process_id(record.identity, record.at_ns)
        window = self._insert("window", record, *names, process=process, **of_devices)
        tables = {
            "window_step": record.steps,
            "operator": record.operators,
            "window_wait": record.waits,
        }
        for table, rows in {**tables, "window_gpu": record.gpus, "host_gap": record.gaps}.items():
            values_of = [(window, *msgspec.structs.astuple(row)) for row in rows]
            if values_of:
                sql = f"INSERT OR IGNORE INTO {table} VALUES (?{',?' * (len(values_of[0]) - 1)})"
                self._connection.executemany(sql, values_of)

    @_write.register
    def _(self, record: records.HangFound) -> None:
        report = msgspec.json.encode(record.report).decode()
        names, cause = ("at_ns", "since_ns", "ended_ns", "text"), record.report.cause
        self._insert("hang", record, *names, cause=cause, report=report)

    @_write.register
    def _(self, record: records.HangEnded) -> None:
        self._connection.execute(
            "UPDATE hang SET ended_ns = ? WHERE at_ns = ?", (record.at_ns, record.hang_ns)
        )

    @_write.register
    def _(self, record: records.FindingsTaken) -> None:
        write_findings(self._connection, record)

    @_write.register
    def _(self, record: records.AnalysisLost) -> None:
        lose_analysis(self._connection, record.at_ns)

    @_write.register
    def _(self, record: records.OutputWritten) -> None:
        self._insert("output", record, "at_ns", "data")
        self._output_bytes += len(record.data)
        while self._output_bytes > OUTPUT_LIMIT_BYTES:
            sql = "SELECT id, length(data) FROM output ORDER BY id LIMIT 1"
            oldest, length = self._connection.execute(sql).fetchone()
            self._connection.execute("DELETE FROM output WHERE id = ?", (oldest,))
            self._output_bytes -= length

    @_write.register
    def _(self, record: records.RunEnded) -> None:
        say_gone(self._connection, record.at_ns)
        exit_ = {
            "why_ended": record.why,
            "exit_code": record.exit_code,
            "exit_signal": record.exit_signal,
        }
        set_meta(self._connection, state="ended", ended_ns=record.at_ns, **exit_)

    def _insert(self, table: str, record: Record, *names: str, **others: object) -> int:
        """Add a row with the record's fields of these names, and other columns; return its id."""
        columns = {name: getattr(record, name) for name in names}
        return insert(self._connection, table, columns | others)

    def _process_id(self, identity: Identity, at_ns: int) -> int:
        """Return the id of a process.

        If its first record was dropped, little is known of it until it is seen again.
        """
        while (known := self._ids.process(identity)) is None:
            self._write(ProcessSeen(identity, None, (), "helper", None, None, None, at_ns))
        return known
