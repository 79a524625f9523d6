"""Reads a run file, live or finished: the one way by which anything that shows something gets at a run.

A reader belongs to one thread at a time. Tables that only grow (frames, stacks, processes, threads) are kept in memory
and topped up on ``refresh``; the large ones (intervals, points) are read by time range.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store import database
from profd.daemon.store.records import HangReport
from profd.daemon.store.rows import (
    DeviceRow,
    EventRow,
    FrameRow,
    HangRow,
    IntervalRow,
    OperatorRow,
    OutputRow,
    PlacementRow,
    PointRow,
    ProcessRow,
    RecordingRow,
    RunInfo,
    SeriesRow,
    StackRow,
    StackTotal,
    ThreadRow,
    WindowRow,
    WindowStepRow,
)
from profd.daemon.store.rowtypes import checked
from profd.daemon.store.sums.held import READINGS

_LATEST_NS = 1 << 62
_LONGEST_NS = 10 * 366 * 86400 * SECOND_NS
_STARTED_FIELDS = ("id", "name", "mode", "cwd", "host", "user", "started_ns", "control_socket")
_STARTED_AS_JSON: dict[str, Any] = {
    "target": tuple[int, int],
    "recorder": tuple[int, int],
    "command": tuple[str, ...],
    "versions": dict[str, str],
    "options": dict[str, int | float | bool | str | None],
}


class RunReader:
    """An open run file.

    Every method raises RunUnreadable where the file turns out to be damaged.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises RunUnreadable where it is no readable run file."""
        self.path = path
        self._connection = database.open_readonly(path)
        self.frames: dict[int, FrameRow] = {}
        self.stacks: dict[int, StackRow] = {}
        self.processes: dict[int, ProcessRow] = {}
        self.threads: dict[int, ThreadRow] = {}
        self.series: dict[int, SeriesRow] = {}
        self._data_version: int | None = None
        self._checked_stacks: set[int] = set()
        try:
            self.refresh()
        except RunUnreadable:
            self.close()
            raise

    def __enter__(self) -> RunReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def refresh(self) -> None:
        """Take in what was written since the last call: ``info`` and the tables held in memory."""
        self.info: RunInfo = self._read_info()
        # Children before parents in the order of foreign keys: what a row read now refers to is then there too.
        for row in self.select(SeriesRow, "SELECT id, name, process, os_tid, device FROM series"):
            self.series[row[0]] = SeriesRow(*row)
        for row in self.select(ThreadRow, "SELECT id, process, os_tid, name, is_main FROM thread"):
            self.threads[row[0]] = ThreadRow(row[0], row[1], row[2], row[3], bool(row[4]))
        for row in self.select(ProcessRow, f"SELECT {_columns(ProcessRow)} FROM process"):
            with database.reading(self.path):
                command = tuple(msgspec.json.decode(str(row[4]), type=list[str]))
            self.processes[row[0]] = ProcessRow(row[0], row[1], row[2], row[3], command, *row[5:])
        newest_stack = max(self.stacks, default=0)
        for row in self.select(StackRow, "SELECT id, parent, frame FROM stack WHERE id > ?", newest_stack):
            self.stacks[row[0]] = StackRow(*row)
        for row in self.select(
            FrameRow,
            "SELECT id, function, file, module_path, line, is_library, source FROM frame WHERE id > ?",
            max(self.frames, default=0),
        ):
            self.frames[row[0]] = FrameRow(row[0], row[1], row[2], row[3], row[4], bool(row[5]), row[6])

        self._check_references()

    def _check_references(self) -> None:
        """Raise RunUnreadable where a row names another one that is not there."""
        processes = {None, *self.processes}
        known = (
            all(row.process in self.processes for row in self.threads.values())
            and all(row.process in processes for row in self.series.values())
            and all(row.parent in processes for row in self.processes.values())
        )
        if not known:
            raise database.unreadable(self.path, "a row names a process that is not there")
        for stack in sorted(self.stacks.keys() - self._checked_stacks):
            row = self.stacks[stack]
            # A stack is written after the one that it extends: only a damaged file goes in a circle.
            if row.frame not in self.frames or (row.parent and not (row.parent < stack and row.parent in self.stacks)):
                raise database.unreadable(self.path, f"stack {stack} is damaged")
            self._checked_stacks.add(stack)

    def check_known(self, threads: Collection[int], stacks: Collection[int]) -> None:
        """Raise RunUnreadable where rows name threads or stacks that are not there, nor were written since."""
        for _ in range(2):
            if self.threads.keys() >= set(threads) and self.stacks.keys() >= set(stacks):
                return
            self.refresh()
        raise database.unreadable(self.path, "intervals name threads or stacks that are not there")

    def changed(self) -> bool:
        """Say whether anything was committed since this was last asked; True at first. Costs a look at the log."""
        version: int = self._query("PRAGMA data_version")[0][0]
        seen, self._data_version = self._data_version, version
        return version != seen

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[None]:
        """Read everything as of one moment: refreshed on entry, blind to what a live run writes until the end.

        Without it an interval may name a stack that is newer than the tables in memory.
        """
        with database.reading(self.path):
            self._connection.execute("BEGIN")
        try:
            self.refresh()
            yield
        finally:
            self._connection.rollback()

    def frames_of(self, stack: int) -> tuple[FrameRow, ...]:
        """Return the frames of a stack from the root to the leaf."""
        if stack not in self.stacks:  # an interval may be younger than the tables in memory
            self.refresh()
        frames: list[FrameRow] = []
        while stack:
            row = self.stacks.get(stack)
            # A stack is written after the one that it extends: only a damaged file goes in a circle.
            if row is None or row.frame not in self.frames or row.parent >= stack:
                raise database.unreadable(self.path, f"stack {stack} is damaged")
            frames.append(self.frames[row.frame])
            stack = row.parent
        return tuple(reversed(frames))

    def intervals(
        self, from_ns: int | None = None, to_ns: int | None = None, threads: Collection[int] | None = None
    ) -> Iterator[IntervalRow]:
        """Yield the intervals that *start* in [from_ns, to_ns), in order of time, of all threads or of these."""
        where, values = _time_range("start_ns", from_ns, to_ns)
        if threads is not None:
            where += f" AND thread IN ({','.join('?' * len(threads))})"
            values += list(threads)
        sql = f"SELECT start_ns, duration_ns, thread, stack, samples FROM interval WHERE {where} ORDER BY start_ns"
        rows = self.select(IntervalRow, sql, *values)
        self.check_known({row[2] for row in rows}, {row[3] for row in rows})
        for row in rows:
            yield IntervalRow(*row)

    def stack_totals(
        self, from_ns: int | None = None, to_ns: int | None = None, threads: Collection[int] | None = None
    ) -> list[StackTotal]:
        """Return the intervals that start in [from_ns, to_ns), summed up by thread and stack."""
        where, values = _time_range("start_ns", from_ns, to_ns)
        if threads is not None:
            where += f" AND thread IN ({','.join('?' * len(threads))})"
            values += list(threads)
        sql = f"SELECT thread, stack, sum(samples), sum(duration_ns) FROM interval WHERE {where} GROUP BY thread, stack"
        rows = self.select(StackTotal, sql, *values)
        self.check_known({row[0] for row in rows}, {row[1] for row in rows})
        return [StackTotal(*row) for row in rows]

    def recordings(self, from_ns: int | None = None, to_ns: int | None = None) -> list[RecordingRow]:
        """Return the recordings that start in [from_ns, to_ns), in order of time."""
        where, values = _time_range("start_ns", from_ns, to_ns)
        return [
            RecordingRow(*row)
            for row in self.select(
                RecordingRow, f"SELECT {_columns(RecordingRow)} FROM recording WHERE {where} ORDER BY start_ns", *values
            )
        ]

    def recordings_after(self, recording: int, limit: int) -> list[RecordingRow]:
        """Return up to ``limit`` recordings written after the one with this id, in the order of writing."""
        sql = f"SELECT {_columns(RecordingRow)} FROM recording WHERE id > ? ORDER BY id LIMIT ?"
        return [RecordingRow(*row) for row in self.select(RecordingRow, sql, recording, limit)]

    def points(self, series: int, from_ns: int | None = None, to_ns: int | None = None) -> list[PointRow]:
        """Return the points of a series in [from_ns, to_ns), in order of time."""
        where, values = _time_range("at_ns", from_ns, to_ns)
        sql = f"SELECT at_ns, value FROM point WHERE series = ? AND {where} ORDER BY at_ns"
        return [PointRow(*row) for row in self.select(PointRow, sql, series, *values)]

    def readings(self, series: int, from_ns: int | None = None, to_ns: int | None = None) -> list[PointRow]:
        """Return the points of a series that tell of [from_ns, to_ns), each of the time since the one before it.

        So many come before the range as tell what distance is usual, and one beyond its end.
        """
        if from_ns is None and to_ns is None:
            return self.points(series)
        times = {"from": from_ns or 0, "to": _LATEST_NS if to_ns is None else to_ns}
        with database.reading(self.path):
            rows = self._connection.execute(READINGS, {"series": series, **times}).fetchall()
            return [PointRow(*row) for row in checked(PointRow, rows)]

    def last_point(self, series: int, to_ns: int | None = None) -> PointRow | None:
        """Return the newest point of a series, of those before a time where one is given."""
        sql = "SELECT at_ns, value FROM point WHERE series = ? AND at_ns < ? ORDER BY at_ns DESC LIMIT 1"
        rows = self.select(PointRow, sql, series, _LATEST_NS if to_ns is None else to_ns)
        return PointRow(*rows[0]) if rows else None

    def find_series(self, name: str, process: int | None = None, device: str | None = None) -> SeriesRow | None:
        """Return the series of this name of a process, a device or (both None) the host; None where there is none."""
        for row in self.series.values():
            if row.name == name and row.process == process and row.device == device and row.os_tid is None:
                return row
        return None

    def events(self, after_id: int = 0) -> list[EventRow]:
        """Return the events written after the one with this id, in the order of writing."""
        return [
            EventRow(*row)
            for row in self.select(
                EventRow, "SELECT id, at_ns, kind, process, text FROM event WHERE id > ? ORDER BY id", after_id
            )
        ]

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

    def windows(self, asked_ns: int = 0) -> list[WindowRow]:
        """Return the torch.profiler windows that were asked for at this time or later, in the order of writing.

        None from a file that is older than their table.
        """
        if not self.has_table("window"):
            return []
        columns = ", ".join(WindowRow.__struct_fields__[:-1])
        sql = f"SELECT {columns}, length(trace) FROM window WHERE asked_ns >= ? ORDER BY id"
        return [WindowRow(*row) for row in self.select(WindowRow, sql, asked_ns)]

    def window_steps(self, window: int) -> list[WindowStepRow]:
        """Return the whole steps within a window, in order of time."""
        sql = "SELECT start_ns, end_ns FROM window_step WHERE window = ? ORDER BY start_ns"
        return [WindowStepRow(*row) for row in self.select(WindowStepRow, sql, window)]

    def operators(self, window: int) -> list[OperatorRow]:
        """Return the operators of a window by input shape, and its kernels."""
        sql = f"SELECT {_columns(OperatorRow)} FROM operator WHERE window = ? ORDER BY rowid"
        return [OperatorRow(row[0], row[1], bool(row[2]), *row[3:]) for row in self.select(OperatorRow, sql, window)]

    def window_trace(self, window: int) -> bytes | None:
        """Return the trace of a window, gzipped; None where it was not kept."""
        rows = self._query("SELECT trace FROM window WHERE id = ?", window)
        return rows[0][0] if rows else None

    def hangs(self) -> list[HangRow]:
        """Return the hangs of the run in order of time; none from a file that is older than their table."""
        if not self.has_table("hang"):
            return []
        rows = self._query("SELECT id, at_ns, since_ns, ended_ns, cause, text, report FROM hang ORDER BY id")
        with database.reading(self.path):
            reports = [msgspec.json.decode(str(row[-1]), type=HangReport) for row in rows]
        return [HangRow(*row[:-1], report) for row, report in zip(rows, reports, strict=True)]  # type: ignore[call-arg]

    def output(self, after_id: int = 0) -> list[OutputRow]:
        """Return the script's output written after the row with this id, in order."""
        return [
            OutputRow(*row)
            for row in self.select(OutputRow, "SELECT id, at_ns, data FROM output WHERE id > ? ORDER BY id", after_id)
        ]

    def main_threads(self) -> list[ThreadRow]:
        """Return the main threads of the processes that do the training: one a rank."""
        return [
            thread
            for thread in self.threads.values()
            if thread.is_main and thread.process in self.processes and self.processes[thread.process].role == "main"
        ]

    def _read_info(self) -> RunInfo:
        meta: dict[str, Any] = dict(self._query("SELECT name, value FROM meta"))
        if not meta.keys() >= {*_STARTED_FIELDS, *_STARTED_AS_JSON, "state", "written_ns"}:
            raise database.unreadable(self.path, "its first records are missing")
        with database.reading(self.path):
            target, recorder, command, versions, options = (
                msgspec.json.decode(str(meta[name]), type=kind) for name, kind in _STARTED_AS_JSON.items()
            )
        state = meta["state"]
        if state == "live" and not processes.is_running(*recorder):
            state = "interrupted"
        values: dict[str, object] = dict(
            **{name: meta[name] for name in _STARTED_FIELDS},
            pid=target[0],
            start_ticks=target[1],
            command=command,
            state=state,
            end_ns=meta.get("ended_ns") or meta["written_ns"],
            why_ended=meta.get("why_ended"),
            exit_code=meta.get("exit_code"),
            exit_signal=meta.get("exit_signal"),
            recorder_pid=recorder[0],
            versions=versions,
            options=options,
        )
        with database.reading(self.path):
            info = msgspec.convert(values, RunInfo)
        if not info.started_ns <= info.end_ns <= info.started_ns + _LONGEST_NS:
            raise database.unreadable(self.path, "it ends before it starts, or ten years later")
        return info

    def select(self, row: type[msgspec.Struct], sql: str, *values: int | str) -> list[tuple[Any, ...]]:
        """Return what a query gives for rows of this type; raises RunUnreadable where a value is of another type."""
        with database.reading(self.path):
            return checked(row, self._query(sql, *values))

    def has_table(self, name: str) -> bool:
        """Say whether the file has a table: an older one may lack it."""
        return bool(self._query("SELECT 1 FROM sqlite_master WHERE name = ?", name))

    def _query(self, sql: str, *values: int | str) -> list[tuple[Any, ...]]:
        with database.reading(self.path):
            return self._connection.execute(sql, values).fetchall()


def _columns(row: type[msgspec.Struct]) -> str:
    """Return the columns of a table whose rows have the fields of ``row``."""
    return ", ".join(row.__struct_fields__)


def _time_range(column: str, from_ns: int | None, to_ns: int | None) -> tuple[str, list[int]]:
    """Return a condition on a column of times, and its values."""
    conditions: list[str] = ["1"]
    values: list[int] = []
    if from_ns is not None:
        conditions.append(f"{column} >= ?")
        values.append(from_ns)
    if to_ns is not None:
        conditions.append(f"{column} < ?")
        values.append(to_ns)
    return " AND ".join(conditions), values
