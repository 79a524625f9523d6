"""Writes sums of readings per minute while a run is written.

``stepfunction`` says how long a reading holds.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable

import msgspec

from profd.daemon.clock import MINUTE_NS
from profd.daemon.store.rollups import ENDED_LONG_AGO_NS
from profd.daemon.store.stepfunction import Step, StepBuilder

_ADD = """
    INSERT INTO point_minute (series, minute, readings, known_ns, area, least, most, last_ns)
    VALUES (?,?,?,?,?,?,?,?)
    ON CONFLICT (series, minute) DO UPDATE SET
        readings = readings + excluded.readings,
        known_ns = known_ns + excluded.known_ns,
        area = area + excluded.area,
        least = min(least, excluded.least),
        most = max(most, excluded.most),
        last_ns = max(last_ns, excluded.last_ns)
"""


class _Minute(msgspec.Struct):
    """What a series was in the minute that is going on."""

    builder: StepBuilder
    minute: int
    readings: int = 0
    known_ns: int = 0
    area: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    last_ns: int = 0


class PointRollups:
    """The sums of a run file that is being written; used by the writer's thread.

    Readings count once the transaction that adds them is committed. The next transaction writes a
    minute that they complete. So a transaction that fails has nothing to take back.
    """

    def __init__(self, connection: sqlite3.Connection, started_ns: int) -> None:
        self._connection, self._started_ns = connection, started_ns
        self._settled_ns = started_ns
        self._minutes: dict[int, _Minute] = {}
        self._added: list[tuple[int, int, float]] = []
        self._complete: list[tuple[float, ...]] = []
        self._is_written = False

    def begin(self) -> None:
        """Begin a transaction; the one before counts as committed unless it was undone."""
        if self._is_written:
            self._complete, self._is_written = [], False
        added, self._added = self._added, []
        for series, at_ns, value in added:
            if series not in self._minutes:
                self._minutes[series] = _Minute(StepBuilder(), self._minute_of(at_ns))
            for step in self._minutes[series].builder.add(at_ns, value):
                self._hold(series, step)

    def undo(self) -> None:
        self._added, self._is_written = [], False

    def add(self, readings: Iterable[tuple[int, int, float]]) -> None:
        """Take the readings that the transaction adds: series, time in ns, value."""
        self._added += [
            one for one in readings if math.isfinite(one[2])
        ]  # the table of points takes no others either

    def settle(self, now_ns: int) -> None:
        """Write complete minutes, and end series that were not read for long.

        This includes the series of processes that have ended.
        """
        if now_ns >= self._settled_ns + MINUTE_NS:
            self._settled_ns = now_ns
            going_on = {series for series, _, _ in self._added}
            last_ns = {
                series: known.builder.last_ns or 0 for series, known in self._minutes.items()
            }
            self._end(
                one
                for one in last_ns.keys() - going_on
                if last_ns[one] < now_ns - ENDED_LONG_AGO_NS
            )
        self._write()

    def finish(self) -> None:
        self._end(list(self._minutes))
        self._write()

    def _hold(self, series: int, step: Step) -> None:
        """Count a step in the minutes that it covers."""
        known, start_ns = self._minutes[series], max(step.start_ns, self._started_ns)
        while True:
            minute = self._minute_of(start_ns)
            if minute != known.minute:
                self._close(series, known)
                known = self._minutes[series] = _Minute(known.builder, minute)
            # Instead of min and max, because this runs for each reading of a run.
            end_ns, value = self._started_ns + (minute + 1) * MINUTE_NS, step.value
            end_ns = step.end_ns if step.end_ns < end_ns else end_ns
            held_ns = end_ns - start_ns if end_ns > start_ns else 0
            known.readings += 1
            known.known_ns += held_ns
            known.area += value * held_ns
            known.least = value if value < known.least else known.least
            known.most = value if value > known.most else known.most
            known.last_ns = start_ns + held_ns
            if end_ns >= step.end_ns:
                return
            start_ns = end_ns

    def _minute_of(self, at_ns: int) -> int:
        return (at_ns - self._started_ns) // MINUTE_NS

    def _end(self, every: Iterable[int]) -> None:
        for series in every:
            for step in self._minutes[series].builder.close():
                self._hold(series, step)
            self._close(series, self._minutes.pop(series))

    def _close(self, series: int, known: _Minute) -> None:
        if known.readings:
            self._complete.append((series, *msgspec.structs.astuple(known)[1:]))

    def _write(self) -> None:
        self._connection.executemany(_ADD, self._complete)
        self._is_written = True
