"""Reads a run file, live or finished: everything that shows a run reads it through here.

A reader belongs to one thread at a time. What rows refer to (frames, stacks, processes, threads) is
held in memory and topped up by ``refresh``. Series are read by name, the large tables (intervals,
points) by time range. The functions of ``rollups`` read sums per minute and per column of time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.events import EventKind
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store import database, records, rows
from profd.daemon.store.entities import Entities
from profd.daemon.store.records import Count, IntervalLength, Time, Value
from profd.daemon.store.rollups import StackMinuteRow, StoredRollups
from profd.daemon.store.rows import (
    FrameRow,
    IntervalRow,
    PointRow,
    RecordingRow,
    SeriesRow,
    StackTotal,
    count_total,
)
from profd.daemon.store.runfile import RunFile
from profd.daemon.store.stepfunction import READINGS, StepFunction, step_function
from profd.daemon.timerange import EVER, TimeRange

_STARTS_IN = "start_ns >= ? AND start_ns < ?"
_IN_A_ROW = """
    SELECT max(min(value, (
        SELECT value FROM point AS before WHERE before.series = point.series
        AND before.at_ns < point.at_ns AND before.at_ns >= ?2
        ORDER BY before.at_ns DESC LIMIT 1)))
    FROM point WHERE series = ?1 AND at_ns >= ?2 AND at_ns < ?3 AND value > ?4
"""
_PART_NS = 300 * SECOND_NS
Seen = TypeVar("Seen", StackMinuteRow, rows.ColumnTime, StackTotal)
OfProcess = TypeVar("OfProcess", RecordingRow, rows.GapRow, SeriesRow, rows.WindowRow)


class RunReader(RunFile):
    """An open run file.

    Every method raises RunUnreadable if the file turns out to be damaged.
    """

    folds = True
    """Whether this program may fold a log that a recorder left, which writes to the file."""

    def __init__(self, path: Path, known: Entities | None = None) -> None:
        """Open ``path`` and read what its rows refer to.

        Raises RunUnreadable if it is no readable run file. ``known`` is what an earlier reader of
        the same file knew. This reader goes on from there, and reads nothing new before ``refresh``
        or ``one_moment``.
        """
        super().__init__(path)
        self.entities = known or Entities()
        self.frames, self.stacks = self.entities.frames, self.entities.stacks
        self.processes, self.threads = self.entities.processes, self.entities.threads
        self.rollups = StoredRollups(self)
        try:
            self.info = self.run_info()
            if known is None:
                self.refresh()
        except RunUnreadable:
            super().close()
            raise

    def close(self) -> None:
        """Close the file, and fold its log, which the recorder could not do while it was read."""
        super().close()
        if self.folds and self.info.state == "ended":
            database.fold(self.path)

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_over_without_samples(self) -> bool:
        """Say whether the run has ended without a single stack."""
        return self.info.state != "live" and not self.recorded().whole

    def refresh(self) -> None:
        """Read what was written since the last call: ``info`` and the tables held in memory."""
        self.info = self.run_info()
        self.entities.top_up(self, self.info.end_ns)

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[None]:
        """Read everything as of one moment.

        The reader is refreshed on entry, and sees nothing that a live run writes until the end of
        the block. Without this, an interval may name a stack that is newer than the tables in
        memory.
        """
        with self._transaction():
            self.refresh()
            yield

    def check_known(
        self,
        threads: Collection[int] = (),
        stacks: Collection[int] = (),
        processes: Collection[int] = (),
    ) -> None:
        """Raise RunUnreadable if rows name what does not exist, even after a refresh."""
        for _ in range(2):
            if self.entities.knows(self, threads, stacks, processes):
                return
            self.refresh()
        raise database.unreadable(
            self.path, "a row names a process, a thread or a stack that is not there"
        )

    def known(self, found: list[Seen]) -> list[Seen]:
        """Return rows whose threads and stacks exist; raises RunUnreadable otherwise."""
        self.check_known({one.thread for one in found}, {one.stack for one in found})
        return found

    def frames_of(self, stack: int) -> tuple[FrameRow, ...]:
        """Return the frames of a stack from the root to the leaf."""
        if stack and stack not in self.stacks:  # an interval may be newer than the tables in memory
            self.check_known(stacks=[stack])
        try:
            return self.entities.frames_of(stack)
        except KeyError as error:
            raise database.unreadable(self.path, f"stack {error} is damaged") from None

    def find_series(
        self, name: str, process: int | None = None, device: str | None = None
    ) -> SeriesRow | None:
        """Return the series of this name of a process, a device or (both None) the host, if any."""
        key = "process IS ? AND name = ? AND os_tid IS NULL AND device IS ?"
        found = self.fetch_from("series", SeriesRow, key, process, name, device)
        return found[-1] if found else None

    def list_series(
        self, *names: str, processes: Collection[int | None] | None = None, after_id: int = 0
    ) -> list[SeriesRow]:
        """Return the series of these names, or of all, in the order of writing.

        ``processes`` selects the processes; None in it stands for series of no process. A reader
        that forgets processes does not return their series.
        """
        if processes is None and not self.entities.is_whole:
            processes = {None, *self.processes}
        where = f"id > {after_id:d}"
        if names:
            where += f" AND name IN ({','.join('?' * len(names))})"
        if processes is not None:
            ids = database.listed(one for one in processes if one is not None)
            where += (
                f" AND (process IN ({ids}){' OR process IS NULL' if None in processes else ''})"
            )
        return self._of_processes("series", SeriesRow, f"{where} ORDER BY id", *names)

    def main_threads(self) -> list[rows.ThreadRow]:
        """Return the main threads of the training processes: one per rank."""
        return [
            thread
            for thread in self.threads.values()
            if thread.is_main
            and thread.process in self.processes
            and self.processes[thread.process].is_main
        ]

    def intervals(
        self, time: TimeRange = EVER, threads: Collection[int] | None = None
    ) -> Iterator[IntervalRow]:
        """Yield the intervals that *start* in a range of time, in order of time.

        They are those of all threads or of the given ones. They are read some minutes at a time,
        because those of a day take hundreds of megabytes.
        """
        sql = (
            "SELECT start_ns, duration_ns, thread, stack, samples FROM interval WHERE "
            f"{_intervals_of(threads)} ORDER BY start_ns"
        )
        for part in self._parts(time):
            found = self.select(tuple[Time, IntervalLength, int, int, Count], sql, *part)
            self.check_known({one[2] for one in found}, {one[3] for one in found})
            for one in found:
                yield IntervalRow(*one)

    def sampled_threads(self, time: TimeRange) -> set[int]:
        """Return the ids of the threads that were sampled in a range of time.

        In a long run, these are the threads that lived then.
        """
        sql = f"SELECT DISTINCT thread FROM interval WHERE {_STARTS_IN}"
        found = self.select(tuple[int], sql, *time)
        return {thread for (thread,) in found}

    def _parts(self, time: TimeRange) -> Iterator[TimeRange]:
        inner = time.within(self.info.time)
        # The times of a file may be anything, so there are at most a thousand parts.
        cuts = range(*inner, max(_PART_NS, inner.length_ns // 1000))[1:]
        return map(TimeRange, (time.from_ns, *cuts), (*cuts, time.to_ns))

    def stack_spans(self, time: TimeRange, threads: Collection[int]) -> list[tuple[int, int, int]]:
        """Return by stack the first start and the last end of its intervals.

        Only intervals that start in a range of time count.
        """
        sql = (
            "SELECT stack, min(start_ns), max(start_ns + duration_ns) FROM interval WHERE "
            f"{_intervals_of(threads)} GROUP BY stack"
        )
        found = self.select(tuple[int, Time, Time], sql, *time)
        self.check_known(stacks={stack for stack, _, _ in found})
        return found

    def totals(
        self, time: TimeRange = EVER, threads: Collection[int] | None = None
    ) -> list[StackTotal]:
        """Return by thread and stack the sums of intervals that start in a range of time.

        They are those of all threads or of the given ones. Whole minutes are read from the stored
        sums, the rest from the intervals; the result is the same to the nanosecond.
        """
        found: dict[tuple[int, int], StackTotal] = {}
        sums, rests = self.rollups.sums(time, self.threads if threads is None else threads)
        for one in sums:
            count_total(found, StackTotal(one.thread, one.stack, one.samples, one.duration_ns))
        for rest in rests:
            for total in self.rollups.beside(rest):
                count_total(found, total)
        return list(found.values())

    def stack_totals(
        self, time: TimeRange = EVER, threads: Collection[int] | None = None
    ) -> list[StackTotal]:
        """Return the same as ``totals``, from the intervals alone.

        For a short range this is as fast.
        """
        sql = (
            "SELECT thread, stack, sum(samples), sum(duration_ns) FROM interval WHERE "
            f"{_intervals_of(threads)} GROUP BY thread, stack"
        )
        return self.known(self.fetch(StackTotal, sql, *time))

    def recordings(self, time: TimeRange = EVER) -> list[RecordingRow]:
        """Return the recordings that start in a range of time, in order of time."""
        where = f"{_STARTS_IN} ORDER BY start_ns"
        return self._of_processes("recording", RecordingRow, where, *time)

    def recordings_after(
        self, recording: int, limit: int = -1, from_ns: int = 0
    ) -> list[RecordingRow]:
        """Return the recordings written after this id that start at ``from_ns`` or later.

        Return all of them, or at most ``limit``.
        """
        where = "id > ? AND start_ns >= ? ORDER BY id LIMIT ?"
        return self._of_processes("recording", RecordingRow, where, recording, from_ns, limit)

    def _of_processes(
        self, table: str, row: type[OfProcess], where: str, *values: int | str
    ) -> list[OfProcess]:
        """Return rows of a table, each of a process that exists, or of none."""
        found = self.fetch_from(table, row, where, *values)
        self.check_known(processes={one.process for one in found if one.process is not None})
        return found

    def gaps(self, time: TimeRange = EVER) -> list[rows.GapRow]:
        """Return the gaps that overlap a range of time, in order of time.

        Empty if the file lacks their table.
        """
        where = "end_ns > ? AND start_ns < ? ORDER BY start_ns"
        return self._of_processes("gap", rows.GapRow, where, *time)

    def gaps_after(self, gap: int) -> list[rows.GapRow]:
        """Return the gaps written after this id; those of a process are in order of time."""
        return self._of_processes("gap", rows.GapRow, "id > ? ORDER BY id", gap)

    def recorded(self, time: TimeRange = EVER) -> rows.RecordedTotal:
        """Return the totals of the recordings that start in a range of time."""
        sql = (
            "SELECT coalesce(sum(samples), 0), coalesce(sum(torn), 0) FROM recording WHERE "
            f"{_STARTS_IN}"
        )
        return self.fetch(rows.RecordedTotal, sql, *time)[0]

    def reads(self, time: TimeRange = EVER) -> list[rows.ReadsTotal]:
        """Return by process how many reads were due and how many failed.

        All recordings that overlap the range count.
        """
        due = "sum(rate_hz * max(end_ns - start_ns, 0) / 1e9)"
        sql = (
            f"SELECT process, sum(errors), {due} FROM recording WHERE {_STARTS_IN} AND end_ns > ? "
            "GROUP BY process"
        )
        # The bound lets the query on the ends of recordings use the index of their starts.
        begun_ns = time.from_ns - RECORDING.longest_ns
        return self.fetch(rows.ReadsTotal, sql, begun_ns, time.to_ns, time.from_ns)

    def points(self, series: int, time: TimeRange = EVER) -> list[PointRow]:
        """Return the points of a series in a range of time, in order of time."""
        rest = "series = ? AND at_ns >= ? AND at_ns < ? ORDER BY at_ns"
        return self.fetch_from("point", PointRow, rest, series, *time)

    def readings(self, series: int, time: TimeRange = EVER) -> list[PointRow]:
        """Return the points of a series that determine its value in a range of time.

        Each point determines the value since the point before it. Points before the range give the
        usual distance. Two lie beyond its end, because the first reading of a series holds for as
        long as the second one.
        """
        if time == EVER:
            return self.points(series)
        times = {"from": time.from_ns, "to": time.to_ns}
        return self.fetch(PointRow, READINGS, series=series, **times)

    def steps(self, series: int, time: TimeRange = EVER) -> StepFunction:
        """Return a series as a function of time that is complete over a range of time."""
        return step_function(self.readings(series, time))

    def last_point(self, series: int, to_ns: int = EVER.to_ns) -> PointRow | None:
        """Return the newest point of a series, up to a time if one is given."""
        rest = "series = ? AND at_ns <= ? ORDER BY at_ns DESC LIMIT 1"
        found = self.fetch_from("point", PointRow, rest, series, to_ns)
        return found[0] if found else None

    def points_around(self, series: int, at_ns: int) -> tuple[PointRow | None, PointRow | None]:
        """Return the last point of a series up to a time, and the first after it."""
        rest = "series = ? AND at_ns > ? ORDER BY at_ns LIMIT 1"
        after = self.fetch_from("point", PointRow, rest, series, at_ns)
        return self.last_point(series, at_ns), after[0] if after else None

    def most_in_a_row(self, series: int, time: TimeRange, least: float) -> float:
        """Return the most that two points in a row had in a range of time, or ``least``."""
        found: float | None = self.value(Value | None, _IN_A_ROW, series, *time, least)
        return least if found is None else max(found, least)

    def newest_values(self, series: Collection[int]) -> Mapping[int, float]:
        """Return the newest value of each of these series; series without a value are left out."""
        newest = "(SELECT value FROM point WHERE series = series.id ORDER BY at_ns DESC LIMIT 1)"
        sql = f"SELECT id, {newest} FROM series WHERE id IN ({database.listed(series)})"
        found = self.select(tuple[int, Value | None], sql)
        return {one: value for one, value in found if value is not None}

    def events(self, *kinds: EventKind, after_id: int = 0) -> list[rows.EventRow]:
        """Return the events of some kinds, or all, written after the one with this id.

        They are in the order of writing.
        """
        of_kinds = f"AND kind IN ({','.join('?' * len(kinds))})" if kinds else ""
        return self.fetch_from(
            "event", rows.EventRow, f"id > ? {of_kinds} ORDER BY id", after_id, *kinds
        )

    def output(self, after_id: int = 0) -> list[records.OutputWritten]:
        """Return the script's output written after the row with this id, in order."""
        return self.fetch_from("output", records.OutputWritten, "id > ? ORDER BY id", after_id)

    def hangs(self) -> list[records.HangFound]:
        """Return the hangs of the run in order of time.

        Empty if the file is older than their table.
        """
        return self.fetch_from("hang", records.HangFound, "1 ORDER BY id")

    def placements(self) -> dict[int, rows.PlacementRow]:
        """Return by process the places of ranks in their job.

        Empty if the file is older than their table.
        """
        return {one.process: one for one in self.fetch_from("placement", rows.PlacementRow)}

    def devices(self) -> list[rows.DeviceRow]:
        """Return the GPUs that the run used, in order.

        Empty if the file is older than their table.
        """
        return self.fetch_from("device", rows.DeviceRow, "1 ORDER BY number, name")

    def taken_windows(self) -> list[rows.WindowRow]:
        """Return the windows that were taken, without those that failed."""
        return [window for window in self.windows() if not window.error]

    def windows(self, asked_ns: int = 0) -> list[rows.WindowRow]:
        """Return the windows requested at this time or later, in the order of writing.

        Empty if the file is older than their table.
        """
        where = "asked_ns >= ? ORDER BY id"
        return self._of_processes("window", rows.WindowRow, where, asked_ns)

    def window_steps(self, window: int) -> list[records.WindowStep]:
        """Return the whole steps within a window, in order of time."""
        return self.fetch_from(
            "window_step", records.WindowStep, "window = ? ORDER BY start_ns", window
        )

    def operators(self, window: int) -> list[records.OperatorTotals]:
        """Return the operators of a window by input shape, and its kernels."""
        return self.fetch_from(
            "operator", records.OperatorTotals, "window = ? ORDER BY rowid", window
        )

    def window_gpus(self, window: int) -> list[records.WindowGpu]:
        """Return the GPUs of a window by number.

        Empty if the file is older than their table.
        """
        return self.fetch_from("window_gpu", records.WindowGpu, "window = ? ORDER BY gpu", window)

    def window_streams(self, window: int) -> list[records.WindowStream]:
        """Return the launches and the work in a window by stream.

        Empty if the file is older than their table.
        """
        return self.fetch_from("window_stream", records.WindowStream, "window = ?", window)

    def host_gaps(self, window: int) -> list[records.HostGap]:
        """Return the gaps of GPUs that the host caused in a window, by GPU and time."""
        return self.fetch_from(
            "host_gap", records.HostGap, "window = ? ORDER BY gpu, start_ns", window
        )

    def window_waits(self, window: int) -> list[records.WindowWait]:
        """Return the waits of a window in order of time."""
        return self.fetch_from(
            "window_wait", records.WindowWait, "window = ? ORDER BY start_ns", window
        )

    def window_trace(self, window: int) -> bytes | None:
        """Return the trace of a window, gzipped; None if it was not kept."""
        trace: bytes | None = self.value(
            bytes | None, "SELECT trace FROM window WHERE id = ?", window
        )
        return trace


def _intervals_of(threads: Collection[int] | None) -> str:
    """Return an SQL condition on intervals of threads, or of all, in a range of time."""
    among = "" if threads is None else f" AND thread IN ({database.listed(threads)})"
    return f"{_STARTS_IN}{among}"
