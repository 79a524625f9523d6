"""Writes sums of intervals per minute while a run is written.

They say how long threads stood in which stack, and under which conditions. A recording is summed up
shortly after its end, once the readings of that time have arrived. Until then its intervals are
held in memory, and not read from the file. The sums of a process cover all intervals of one range
of time. A recording that contradicts that range makes them begin anew. The writer's thread does all
of this, within the open transaction.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store import stepfunction
from profd.daemon.store.rollups import ADDED_UP, ENDED_LONG_AGO_NS, FIELDS, HOUR_MINUTES, hours_in
from profd.daemon.store.rows import PointRow
from profd.daemon.store.stepfunction import IntervalCursor, StepFunction, common
from profd.daemon.timerange import TimeRange

LAG_NS = 20 * SECOND_NS
"""After this delay all readings of a time have arrived.

The CPU time of threads is read every five seconds.
"""

MANY_PROCESSES = 64

_COUNTED = ", ".join(
    f"{name} = max({name}, excluded.{name})"
    if name == "until_ns"
    else f"{name} = {name} + excluded.{name}"
    for name in FIELDS
)
_ADD = f"""
    INSERT INTO stack_minute (thread, minute, stack, {", ".join(FIELDS)})
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)
    ON CONFLICT (thread, minute, stack) DO UPDATE SET {_COUNTED}
"""
_OF_PROCESS = "thread IN (SELECT id FROM thread WHERE process = :process)"
_ADD_HOUR = f"""
    INSERT INTO stack_hour (thread, hour, stack, {", ".join(FIELDS)})
    SELECT thread, :hour, stack, {ADDED_UP} FROM stack_minute
    WHERE {_OF_PROCESS} AND minute >= :first AND minute < :last GROUP BY thread, stack
"""
_DEVICES = "SELECT device FROM series WHERE name = ? AND process IS NULL AND device IS NOT NULL"
_HELD_BY_LINE = """
    WITH RECURSIVE line (id, parent) AS (
        SELECT id, parent FROM process WHERE id = :process
        UNION SELECT process.id, process.parent FROM process JOIN line ON process.id = line.parent
    )
    SELECT line.id, line.parent, series.device FROM line
    LEFT JOIN series ON series.name = :name AND series.process = line.id
"""


IntervalColumns = tuple[int, int, int, int, int]
"""A row of table ``interval``: start_ns, thread, duration_ns, stack, samples."""


class _Recording(NamedTuple):
    """A recording of a process, all of whose intervals start in [start_ns, end_ns)."""

    process: int
    start_ns: int
    end_ns: int
    intervals: Sequence[IntervalColumns]


class _Summed(NamedTuple):
    """The range of time over which the intervals of a process are in the sums.

    ``devices`` are the GPUs whose utilization they were compared with.
    """

    time: TimeRange
    devices: frozenset[str]


class _Sum:
    """The sums of one thread in one stack over a minute."""

    __slots__ = ("busy_ns", "duration_ns", "known_ns", "parts", "samples", "until_ns")

    def __init__(self) -> None:
        self.samples = self.duration_ns = self.until_ns = self.known_ns = 0
        self.busy_ns = 0.0
        self.parts = [0] * 6


class StackRollups:
    """The sums of a run file that is being written."""

    def __init__(self, connection: sqlite3.Connection, started_ns: int) -> None:
        self._connection, self._started_ns = connection, started_ns
        self._waiting: deque[_Recording] = deque()
        self._summed: dict[int, _Summed] = {}
        self._many = MANY_PROCESSES
        self.begin()

    def begin(self) -> None:
        """Begin a transaction: ``undo`` goes back to here."""
        self._before = self._waiting.copy(), self._summed.copy(), self._many

    def undo(self) -> None:
        self._waiting, self._summed, self._many = self._before
        self.begin()

    def recorded(
        self, process: int, start_ns: int, end_ns: int, intervals: Sequence[IntervalColumns]
    ) -> None:
        """Take in a recording that was written, with its intervals.

        Those of a thread are in order of time.
        """
        starts = [interval[0] for interval in intervals]
        begin_ns = min(starts, default=start_ns)
        recording = _Recording(process, begin_ns, max([end_ns - 1, *starts]) + 1, intervals)
        known = self._summed.get(process)
        # At once if the sums of its minutes would lack it from now on.
        if known is not None and begin_ns < known.time.to_ns:
            self._sum_up(recording)
        else:
            self._waiting.append(recording)

    def settle(self, now_ns: int) -> None:
        """Sum up the recordings that ended long enough ago, in the order of writing."""
        while self._waiting and self._waiting[0].end_ns + LAG_NS <= now_ns:
            self._sum_up(self._waiting.popleft())
        if len(self._summed) < self._many:
            return
        # A process that ended long ago produces no more recordings.
        ended = self._connection.execute(
            "SELECT id FROM process WHERE ended_ns < ?", (now_ns - ENDED_LONG_AGO_NS,)
        )
        for (process,) in ended:
            self._summed.pop(process, None)
        self._many = max(MANY_PROCESSES, 2 * len(self._summed))

    def finish(self) -> None:
        """Sum up what still waits: no more readings will come."""
        while self._waiting:
            self._sum_up(self._waiting.popleft())

    def _sum_up(self, recording: _Recording) -> None:
        process = recording.process
        devices = self._devices_of(process)
        known = self._summed.get(process) or _Summed(TimeRange(0, 0), devices)
        if recording.start_ns < known.time.to_ns:
            known = self._anew(process, known, max(known.time.to_ns, recording.end_ns))
        if devices != known.devices:
            known = self._anew(process, known, known.time.to_ns)._replace(devices=devices)
        if recording.end_ns > known.time.to_ns:
            self._add(recording, devices)
            grown = TimeRange(known.time.from_ns, recording.end_ns)
            hours, complete = (
                hours_in(time.moved(-self._started_ns)) for time in (grown, known.time)
            )
            for hour in range(max(hours.start, complete.stop), hours.stop):
                first = hour * HOUR_MINUTES
                values = {
                    "process": process,
                    "hour": hour,
                    "first": first,
                    "last": first + HOUR_MINUTES,
                }
                self._connection.execute(_ADD_HOUR, values)
            known = known._replace(time=grown)
        self._set(process, known)

    def _anew(self, process: int, known: _Summed, from_ns: int) -> _Summed:
        """Delete the sums of a process, and let them begin anew at a time."""
        for table in ("stack_minute", "stack_hour"):
            self._connection.execute(
                f"DELETE FROM {table} WHERE {_OF_PROCESS}", {"process": process}
            )
        return known._replace(time=TimeRange(from_ns, from_ns))

    def _set(self, process: int, known: _Summed) -> None:
        self._summed[process] = known
        self._connection.execute(
            "INSERT OR REPLACE INTO summed_process (process, from_ns, to_ns) VALUES (?,?,?)",
            (process, *known.time),
        )

    def _add(self, recording: _Recording, devices: frozenset[str]) -> None:
        if not recording.intervals:
            return
        conditions = _Conditions(
            self._connection, recording.start_ns, recording.end_ns, recording.process, devices
        )
        sums: defaultdict[tuple[int, int, int], _Sum] = defaultdict(_Sum)
        for start_ns, thread, duration_ns, stack, samples in recording.intervals:
            minute = (start_ns - self._started_ns) // MINUTE_NS
            conditions.count(sums[thread, minute, stack], thread, start_ns, duration_ns, samples)
        rows = [
            (
                *key,
                one.samples,
                one.duration_ns,
                one.until_ns,
                one.known_ns,
                one.busy_ns,
                *one.parts,
            )
            for key, one in sorted(sums.items())
        ]
        self._connection.executemany(_ADD, rows)

    def _devices_of(self, process: int) -> frozenset[str]:
        """Return the GPUs that a process uses, as far as is known by now."""
        execute = self._connection.execute
        devices = frozenset(device for (device,) in execute(_DEVICES, (stepfunction.UTILIZATION,)))
        if not devices:
            return devices
        parents: dict[int, int | None] = {}
        held: defaultdict[int, set[str]] = defaultdict(set)
        for one, parent, device in execute(
            _HELD_BY_LINE, {"process": process, "name": stepfunction.MEMORY_OF_PROCESS}
        ):
            parents[one] = parent
            held[one].update([device] if device is not None else [])
        return stepfunction.devices_used(process, parents, held, devices)


class _Conditions:
    """What held for the threads of one process in a range of time."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        from_ns: int,
        to_ns: int,
        process: int,
        devices: frozenset[str],
    ) -> None:
        self._connection = connection
        self._range = {"from": from_ns, "to": to_ns + RECORDING.longest_ns}
        self._process = process
        of_devices = [
            self._steps(stepfunction.UTILIZATION, None, None, device) for device in sorted(devices)
        ]
        self._utilization = stepfunction.mean_function([one for one in of_devices if one.steps])
        self._idle = stepfunction.idle_time(self._utilization)
        self._of_thread: dict[int, tuple[IntervalCursor, ...]] = {}

    def count(self, to: _Sum, thread: int, start_ns: int, duration_ns: int, samples: int) -> None:
        end_ns = start_ns + duration_ns
        mean, known_ns = self._utilization.mean(start_ns, end_ns)
        to.samples += samples
        to.duration_ns += duration_ns
        to.until_ns = max(to.until_ns, end_ns)
        to.known_ns += known_ns
        to.busy_ns += mean * known_ns
        if thread not in self._of_thread:
            os_tid = self._connection.execute(
                "SELECT os_tid FROM thread WHERE id = ?", (thread,)
            ).fetchone()[0]
            ran = stepfunction.on_cpu_time(
                self._steps(stepfunction.THREAD_CPU, self._process, os_tid, None)
            )
            of_thread = self._idle, ran, common(self._idle, ran)
            self._of_thread[thread] = tuple(map(IntervalCursor, of_thread))
        idle, on_cpu, both = self._of_thread[thread]
        idle_ns, cpu_ns = idle.between(start_ns, end_ns), on_cpu.between(start_ns, end_ns)
        both_ns = both.between(start_ns, end_ns) if idle_ns and cpu_ns else 0
        for part, inside_ns in enumerate((idle_ns, cpu_ns, both_ns)):
            if inside_ns:
                to.parts[2 * part] += stepfunction.samples_inside(samples, duration_ns, inside_ns)
                to.parts[2 * part + 1] += inside_ns

    def _steps(
        self, name: str, process: int | None, os_tid: int | None, device: str | None
    ) -> StepFunction:
        found = self._connection.execute(
            "SELECT id FROM series WHERE name = ? AND process IS ? AND os_tid IS ? AND device IS ?",
            (name, process, os_tid, device),
        ).fetchone()
        if found is None:
            return StepFunction([], None)
        rows = self._connection.execute(stepfunction.READINGS, {"series": found[0], **self._range})
        return stepfunction.step_function([PointRow(*row) for row in rows])
