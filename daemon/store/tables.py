"""Puts records into the tables of a run file: SQL and ids.

What is seen repeatedly (processes, threads, series, frames, stacks) is written once, and then
referred to by an integer. A run may go on for weeks, with new workers every few seconds and
functions that are created as it goes. So the memory for ids is bounded: an id is forgotten once
many others were used since. What was forgotten is found again in the file.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from profd.daemon.store import records
from profd.daemon.store.database import as_stored, insert, row_of, set_meta, transaction
from profd.daemon.store.findings import lose_analysis, say_gone, write_findings
from profd.daemon.store.interning import Interning
from profd.daemon.store.pointrollups import PointRollups
from profd.daemon.store.records import (
    DescribeFrame,
    Identity,
    ProcessSeen,
    Record,
)
from profd.daemon.store.stackrollups import IntervalColumns, StackRollups

OUTPUT_LIMIT_BYTES = 4 << 20
_SEE_PROCESS = """
    INSERT INTO process (pid, start_ticks, parent, command, role, rank, ordinal, python, seen_ns)
    VALUES (?,?,?,?,?,?,?,?,?)
    ON CONFLICT (pid, start_ticks) DO UPDATE SET
        parent = excluded.parent,
        command = excluded.command,
        role = excluded.role,
        rank = excluded.rank,
        ordinal = excluded.ordinal,
        python = excluded.python
"""


class Tables:
    """The connection, with the ids of what is in the file."""

    def __init__(self, connection: sqlite3.Connection, describe_frame: DescribeFrame) -> None:
        self._connection = connection
        self._ids = Interning(connection, describe_frame)
        self._output_bytes = 0
        self.written_ns = 0  # the time up to which the run is written

    def begin(self, started: records.RunStarted) -> None:
        """Write what is known at the start, so that no file is ever without it."""
        values, started_ns = msgspec.structs.asdict(started), started.started_ns
        with transaction(self._connection):
            set_meta(self._connection, **values, state="live", written_ns=started_ns)
        self.written_ns = started_ns
        self._stack_sums = StackRollups(self._connection, started_ns)
        self._point_sums = PointRollups(self._connection, started_ns)

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
        self._point_sums.begin()
        self._stack_sums.begin()
        before = self._output_bytes, self.written_ns
        try:
            with transaction(self._connection):
                yield
        except BaseException:
            self._output_bytes, self.written_ns = before
            self._point_sums.undo()
            self._stack_sums.undo()
            self._ids.forget_all()
            raise

    @functools.singledispatchmethod
    def _write(self, record: Record) -> None:
        """Write a record that is one row, unless its kind has a method of its own below."""
        self._insert(record)

    @_write.register
    def _(self, record: records.ProcessSeen) -> None:
        parent, command = self._ids.process(record.parent), as_stored(record.command)
        about = (record.role, record.rank, record.ordinal, record.python, record.at_ns)
        self._connection.execute(_SEE_PROCESS, (*record.identity, parent, command, *about))
        if record.placement is not None:
            process = self._ids.process(record.identity)
            self._connection.execute("DELETE FROM placement WHERE process = ?", (process,))
            place = row_of(record.placement, "placement")
            insert(self._connection, "placement", place | {"process": process})

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

    @_write.register
    def _(self, record: records.RecordingTaken) -> None:
        """Write a recording, and its intervals into the table and the sums."""
        self._insert(record)
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
        process = self._process_id(record.identity, record.start_ns)
        self._stack_sums.recorded(process, record.start_ns, record.end_ns, intervals)

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
        self._connection.execute("DELETE FROM device WHERE name = ?", (record.name,))
        self._insert(record)

    @_write.register
    def _(self, record: records.WindowTaken) -> None:
        of_devices = {
            f"device_{name}": sum(getattr(gpu, name) for gpu in record.gpus)
            for name in ("busy_ns", "idle_ns", "overlap_ns")
            if record.gpus
        }
        window = self._insert(record, **of_devices)
        parts: Mapping[str, Sequence[msgspec.Struct]] = {
            "window_step": record.steps,
            "window_gpu": record.gpus,
            "window_stream": record.streams,
            "host_gap": record.gaps,
            "window_wait": record.waits,
            "operator": record.operators,
        }
        for table, rows in parts.items():
            values_of = [(window, *msgspec.structs.astuple(row)) for row in rows]
            if values_of:
                sql = f"INSERT OR IGNORE INTO {table} VALUES (?{',?' * (len(values_of[0]) - 1)})"
                self._connection.executemany(sql, values_of)

    @_write.register
    def _(self, record: records.HangFound) -> None:
        self._insert(record, cause=record.report.cause)

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
        self._insert(record)
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

    def _insert(self, record: Record, **others: object) -> int:
        """Add a row to the table that a record's tag names, and return its id.

        The record's fields are the columns of the same names, and its process is one, too.
        """
        table = str(record.__struct_config__.tag)
        row = row_of(record, table) | others
        row.pop("id", None)
        if (identity := getattr(record, "identity", None)) is not None:
            row["process"] = self._process_id(identity, records.begin_of(record))
        return insert(self._connection, table, row)

    def _process_id(self, identity: Identity, at_ns: int) -> int:
        """Return the id of a process.

        If its first record was dropped, little is known of it until it is seen again.
        """
        while (known := self._ids.process(identity)) is None:
            self._write(ProcessSeen(identity, None, (), "helper", None, None, None, at_ns))
        return known
