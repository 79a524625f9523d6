"""Writes sums of readings by the minute while a run is written. ``stepfunction`` says how long a reading holds."""

from __future__ import annotations

import math
import sqlite3
from copy import copy

import msgspec

from profd.daemon.store.stepfunction import MINUTE_NS, Step, StepBuilder

_ADD = """
    INSERT INTO point_minute (series, minute, readings, known_ns, area, least, most, last_ns) VALUES (?,?,?,?,?,?,?,?)
    ON CONFLICT (series, minute) DO UPDATE SET
        readings = readings + excluded.readings, known_ns = known_ns + excluded.known_ns, area = area + excluded.area,
        least = min(least, excluded.least), most = max(most, excluded.most), last_ns = max(last_ns, excluded.last_ns)
"""

_COLUMNS = ("minute", "readings", "known_ns", "area", "least", "most", "last_ns")
FORGOTTEN_NS = 5 * MINUTE_NS
"""After so long a series is taken to have ended; one that goes on begins anew, as a series does that was never read."""


class _Minute(msgspec.Struct):
    """A series, and what held of it in the minute that is going on."""

    read_ns: int
    minute: int
    builder: StepBuilder = msgspec.field(default_factory=StepBuilder)
    readings: int = 0
    known_ns: int = 0
    area: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    last_ns: int = 0


class PointRollups:
    """The sums of a run file that is being written, for its writer's thread."""

    def __init__(self, connection: sqlite3.Connection, started_ns: int) -> None:
        self._connection, self._started_ns = connection, started_ns
        self._settled_ns = self._settled_before_ns = started_ns
        self._minutes: dict[int, _Minute] = {}
        self._before: dict[int, _Minute | None] = {}  # what the transaction that is open has changed, as it was before

    def begin(self) -> None:
        """Begin a transaction: ``undo`` goes back to here."""
        self._before.clear()
        self._settled_before_ns = self._settled_ns

    def undo(self) -> None:
        self._minutes = {series: minute for series, minute in self._minutes.items() if series not in self._before}
        self._minutes |= {series: minute for series, minute in self._before.items() if minute is not None}
        self._before.clear()
        self._settled_ns = self._settled_before_ns

    def add(self, series: int, at_ns: int, value: float) -> None:
        """Count a reading of a series; what it completes is written within the transaction that is open."""
        if not math.isfinite(value):  # the table of points takes none either
            return
        known = self._minutes.get(series)
        if known is not None and at_ns <= known.read_ns:  # the table holds one value a time, the first
            return
        self._remember(series)
        if known is None:
            self._minutes[series] = _Minute(at_ns, self._minute_of(at_ns))
        known = self._minutes[series]
        known.read_ns = at_ns
        for step in known.builder.add(at_ns, value):
            self._hold(series, step)

    def _remember(self, series: int) -> None:
        """Keep a series as it was before the transaction that is about to change it."""
        if series not in self._before:
            known = self._before[series] = self._minutes.get(series)
            if known is not None:
                changed = self._minutes[series] = copy(known)
                changed.builder = known.builder.copy()

    def _hold(self, series: int, step: Step) -> None:
        """Count a step in the minutes that it lies in; one that is over is written within the transaction."""
        known, start_ns = self._minutes[series], max(step.start_ns, self._started_ns)
        while True:
            minute = self._minute_of(start_ns)
            if minute != known.minute:
                self._write([series])
                known = self._minutes[series] = _Minute(known.read_ns, minute, known.builder)
            # Not min and max: done for each reading of a run.
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

    def settle(self, now_ns: int) -> None:
        """Write and forget series that were not read for long, as those of processes that have ended."""
        if now_ns < self._settled_ns + FORGOTTEN_NS:
            return
        self._settled_ns = now_ns
        old = [series for series, known in self._minutes.items() if known.read_ns < now_ns - FORGOTTEN_NS]
        for series in old:
            self._remember(series)
        self._end(old)
        for series in old:
            del self._minutes[series]

    def finish(self) -> None:
        self._end(list(self._minutes))

    def _end(self, every: list[int]) -> None:
        for series in every:
            for step in self._minutes[series].builder.close():
                self._hold(series, step)
        self._write(every)

    def _write(self, every: list[int]) -> None:
        known = ((series, self._minutes[series]) for series in every)
        rows = [(series, *(getattr(one, name) for name in _COLUMNS)) for series, one in known if one.readings]
        self._connection.executemany(_ADD, rows)
