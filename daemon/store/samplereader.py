"""The samples of a run file: recordings, and the intervals in them, by range of time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.entities import Entities
from profd.daemon.store.rows import IntervalRow, ReadsTotal, RecordedTotal, RecordingRow, StackTotal
from profd.daemon.store.runfile import columns_of, time_range

# No recording lasts longer: by this the index of their starts is of use where only their ends are asked for.
_LONGEST_NS = 60 * SECOND_NS


class SampleReader(Entities):
    """An open run file with its samples."""

    def intervals(
        self, from_ns: int | None = None, to_ns: int | None = None, threads: Collection[int] | None = None
    ) -> Iterator[IntervalRow]:
        """Yield the intervals that *start* in [from_ns, to_ns), in order of time, of all threads or of these."""
        where, values = _intervals_of(from_ns, to_ns, threads)
        sql = f"SELECT start_ns, duration_ns, thread, stack, samples FROM interval WHERE {where} ORDER BY start_ns"
        rows = self.select(IntervalRow, sql, *values)
        self.check_known({row[2] for row in rows}, {row[3] for row in rows})
        for row in rows:
            yield IntervalRow(*row)

    def stack_totals(
        self, from_ns: int | None = None, to_ns: int | None = None, threads: Collection[int] | None = None
    ) -> list[StackTotal]:
        """Return the intervals that start in [from_ns, to_ns), summed up by thread and stack."""
        where, values = _intervals_of(from_ns, to_ns, threads)
        sql = f"SELECT thread, stack, sum(samples), sum(duration_ns) FROM interval WHERE {where} GROUP BY thread, stack"
        rows = self.select(StackTotal, sql, *values)
        self.check_known({row[0] for row in rows}, {row[1] for row in rows})
        return [StackTotal(*row) for row in rows]

    def recordings(self, from_ns: int | None = None, to_ns: int | None = None) -> list[RecordingRow]:
        """Return the recordings that start in [from_ns, to_ns), in order of time."""
        where, values = time_range("start_ns", from_ns, to_ns)
        sql = f"SELECT {columns_of(RecordingRow)} FROM recording WHERE {where} ORDER BY start_ns"
        return self._recordings(self.select(RecordingRow, sql, *values))

    def recorded(self, from_ns: int | None = None, to_ns: int | None = None) -> RecordedTotal:
        """Return what the recordings that start in [from_ns, to_ns) have read in all."""
        where, values = time_range("start_ns", from_ns, to_ns)
        sql = f"SELECT coalesce(sum(samples), 0), coalesce(sum(torn), 0) FROM recording WHERE {where}"
        return RecordedTotal(*self.select(RecordedTotal, sql, *values)[0])

    def reads(self, from_ns: int | None = None, to_ns: int | None = None) -> list[ReadsTotal]:
        """Return by process how many reads were due and how many failed, in recordings that reach into a range."""
        begins, values = time_range("start_ns", None if from_ns is None else from_ns - _LONGEST_NS, to_ns)
        ends, after = time_range("end_ns", None if from_ns is None else from_ns + 1, None)
        sql = (
            "SELECT process, sum(errors), sum(rate_hz * max(end_ns - start_ns, 0) / 1e9) FROM recording "
            f"WHERE {begins} AND {ends} GROUP BY process"
        )
        return [ReadsTotal(*row) for row in self.select(ReadsTotal, sql, *values, *after)]

    def recordings_after(self, recording: int, limit: int) -> list[RecordingRow]:
        """Return up to ``limit`` recordings written after the one with this id, in the order of writing."""
        sql = f"SELECT {columns_of(RecordingRow)} FROM recording WHERE id > ? ORDER BY id LIMIT ?"
        return self._recordings(self.select(RecordingRow, sql, recording, limit))

    def _recordings(self, rows: list[tuple[Any, ...]]) -> list[RecordingRow]:
        found = [RecordingRow(*row) for row in rows]
        self.check_known(processes={row.process for row in found})
        return found


def _intervals_of(from_ns: int | None, to_ns: int | None, threads: Collection[int] | None) -> tuple[str, list[int]]:
    """Return a condition on intervals, as SQL, and its values."""
    where, values = time_range("start_ns", from_ns, to_ns)
    if threads is None:
        return where, values
    return f"{where} AND thread IN ({','.join('?' * len(threads))})", [*values, *threads]
