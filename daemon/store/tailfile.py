"""What a run file says of its newest part: queries that touch no row twice. Remembers nothing; see ``tail``."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from profd.daemon.store.rows import Count, DeviceRow, PointRow, RecordingRow, RunInfo, Time, Value
from profd.daemon.store.runfile import RunFile, columns_of
from profd.daemon.store.runinfo import run_info


class Span(msgspec.Struct, frozen=True):
    """A range of time of a thread, [from_ns, to_ns)."""

    thread: int
    from_ns: int
    to_ns: int


class StackTime(msgspec.Struct, frozen=True):
    """For how long a thread stood in a stack."""

    thread: int
    stack: int
    time_ns: Time


class IdleMinute(msgspec.Struct, frozen=True):
    """For how long of a minute of the run a thread stood in a stack while the GPUs of its process were idle."""

    thread: int
    minute: int
    stack: int
    idle_ns: Time


class HangCount(msgspec.Struct, frozen=True):
    """How many hangs there were, and how many of them go on."""

    count: Count
    going_on: Count


class _Newest(msgspec.Struct, frozen=True):
    series: int
    value: Value | None


class _Id(msgspec.Struct, frozen=True):
    id: Count


class TailFile(RunFile):
    """A run file, open for one look at what is new.

    Every method raises RunUnreadable where the file turns out to be damaged.
    """

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[None]:
        """See the file as it is now until the end, whatever is written meanwhile."""
        with self._transaction():
            yield

    def info(self) -> RunInfo:
        """Return the run as a whole."""
        return run_info(self.path, dict(self._query("SELECT name, value FROM meta")))

    def newest_id(self, table: str) -> int:
        """Return the highest id of a table, 0 where it is empty."""
        return int(self.select(_Id, f"SELECT coalesce(max(id), 0) FROM {table}")[0][0])

    def rows_between(
        self, row: type[msgspec.Struct], table: str, after: int, newest: int, condition: str = "1"
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a table with ids in (after, newest] that meet a condition, as SQL; in order of ids."""
        sql = f"SELECT {columns_of(row)} FROM {table} WHERE id > ? AND id <= ? AND {condition} ORDER BY id"
        return self.select(row, sql, after, newest)

    def rows_of(self, row: type[msgspec.Struct], table: str, ids: Collection[int]) -> list[tuple[Any, ...]]:
        """Return the rows of a table that have these ids."""
        return self.select(row, f"SELECT {columns_of(row)} FROM {table} WHERE id IN ({_listed(ids)})")

    def recordings_after(self, recording: int, from_ns: int) -> list[RecordingRow]:
        """Return the recordings written after the one with this id, of those that begin at a time or later."""
        sql = f"SELECT {columns_of(RecordingRow)} FROM recording WHERE id > ? AND start_ns >= ? ORDER BY id"
        return [RecordingRow(*row) for row in self.select(RecordingRow, sql, recording, from_ns)]

    def stack_times(self, spans: Sequence[Span]) -> list[StackTime]:
        """Return for how long threads stood in which stack, of the intervals that start in these spans: in one scan."""
        if not spans:
            return []
        values = ", ".join(f"({span.thread:d}, {span.from_ns:d}, {span.to_ns:d})" for span in spans)
        sql = f"""
            WITH span (thread, from_ns, to_ns) AS (VALUES {values})
            SELECT interval.thread, stack, sum(duration_ns) FROM interval CROSS JOIN span
            WHERE start_ns >= ? AND start_ns < ? AND span.thread = interval.thread
            AND start_ns >= from_ns AND start_ns < to_ns GROUP BY 1, 2
        """
        begin_ns, end_ns = min(span.from_ns for span in spans), max(span.to_ns for span in spans)
        return [StackTime(*row) for row in self.select(StackTime, sql, begin_ns, end_ns)]

    def idle_minutes(self, threads: Collection[int], minute: int) -> list[IdleMinute]:
        """Return what the sums by the minute say of idle GPUs, of some threads from a minute on."""
        where = f"thread IN ({_listed(threads)}) AND minute >= ? AND idle_ns > 0"
        sql = f"SELECT {columns_of(IdleMinute)} FROM stack_minute WHERE {where}"
        return [IdleMinute(*row) for row in self.select(IdleMinute, sql, minute)]

    def newest_values(self, series: Collection[int]) -> Mapping[int, float]:
        """Return the newest value of each of some series, those without any aside."""
        newest = "(SELECT value FROM point WHERE series = series.id ORDER BY at_ns DESC LIMIT 1)"
        sql = f"SELECT id, {newest} FROM series WHERE id IN ({_listed(series)})"
        return {one: value for one, value in self.select(_Newest, sql) if value is not None}

    def points_after(self, series: int, at_ns: int) -> list[PointRow]:
        """Return the points of a series that are younger than this, in order of time."""
        sql = "SELECT at_ns, value FROM point WHERE series = ? AND at_ns > ? ORDER BY at_ns"
        return [PointRow(*row) for row in self.select(PointRow, sql, series, at_ns)]

    def devices(self) -> list[DeviceRow]:
        """Return the GPUs that the run used so far, in order."""
        sql = "SELECT name, number, model, uuid, memory_bytes FROM device ORDER BY number, name"
        return [DeviceRow(*row) for row in self.select(DeviceRow, sql)]

    def hangs(self) -> HangCount:
        """Return how many hangs there were."""
        return HangCount(*self.select(HangCount, "SELECT count(*), count(*) - count(ended_ns) FROM hang")[0])


def _listed(ids: Collection[int]) -> str:
    """Return ids, which are the file's own integers, as a list in SQL."""
    return ",".join(f"{one:d}" for one in ids)
