"""Sums of readings by the minute, kept while a run is written. Knows their tables, not what the readings are of."""

from __future__ import annotations

import math
import sqlite3

from profd.daemon.store.sums.held import MINUTE_NS

_ADD = """
    INSERT INTO point_minute (series, minute, readings, known_ns, area, least, most, last_ns) VALUES (?,?,?,?,?,?,?,?)
    ON CONFLICT (series, minute) DO UPDATE SET
        readings = readings + excluded.readings, known_ns = known_ns + excluded.known_ns, area = area + excluded.area,
        least = min(least, excluded.least), most = max(most, excluded.most), last_ns = max(last_ns, excluded.last_ns)
"""

# Of what is read again after that, a minute at most counts as not known.
FORGOTTEN_NS = 5 * MINUTE_NS


class _Minute:
    """What was read of a series in the minute that is going on."""

    __slots__ = ("area", "known_ns", "last_ns", "least", "minute", "most", "readings")

    def __init__(self, minute: int, last_ns: int) -> None:
        self.begin(minute)
        self.last_ns = last_ns

    def begin(self, minute: int) -> None:
        """Start anew with another minute."""
        self.minute = minute
        self.readings = self.known_ns = 0
        self.area = 0.0
        self.least, self.most = float("inf"), float("-inf")

    def copy(self) -> _Minute:
        """Return another one that says the same."""
        other = _Minute(self.minute, self.last_ns)
        other.readings, other.known_ns, other.area = self.readings, self.known_ns, self.area
        other.least, other.most = self.least, self.most
        return other

    def add(self, at_ns: int, value: float) -> None:
        """Take in a reading."""
        told_ns = min(max(at_ns - self.last_ns, 0), MINUTE_NS)
        self.readings += 1
        self.known_ns += told_ns
        self.area += value * told_ns
        self.least = min(self.least, value)
        self.most = max(self.most, value)
        self.last_ns = max(self.last_ns, at_ns)


class PointSums:
    """The sums of a run file that is being written; belongs to its writer's thread."""

    def __init__(self, connection: sqlite3.Connection, started_ns: int) -> None:
        self._connection = connection
        self._started_ns = started_ns
        self._settled_ns = self._settled_before_ns = started_ns
        self._minutes: dict[int, _Minute] = {}
        self._before: dict[int, _Minute | None] = {}
        """What the transaction that is open has changed, as it was before."""

    def begin(self) -> None:
        """Take in that a transaction begins: ``undo`` goes back to here."""
        self._before.clear()
        self._settled_before_ns = self._settled_ns

    def undo(self) -> None:
        """Take back what was taken in since ``begin``: the transaction failed."""
        for series, minute in self._before.items():
            if minute is None:
                self._minutes.pop(series, None)
            else:
                self._minutes[series] = minute
        self._before.clear()
        self._settled_ns = self._settled_before_ns

    def add(self, series: int, at_ns: int, value: float) -> None:
        """Count a reading of a series; what it completes is written within the transaction that is open."""
        if not math.isfinite(value):  # the table of points takes none either
            return
        minute = (at_ns - self._started_ns) // MINUTE_NS
        known = self._minutes.get(series)
        if known is not None and at_ns == known.last_ns:  # the table holds one value a time, the first
            return
        if series not in self._before:
            self._before[series] = known
            if known is not None:
                known = self._minutes[series] = known.copy()
        if known is None:
            known = self._minutes[series] = _Minute(minute, at_ns)
        elif minute != known.minute:
            self._write([series])
            known.begin(minute)
        known.add(at_ns, value)

    def settle(self, now_ns: int) -> None:
        """Write and forget series that were not read for long, as those of processes that have ended."""
        if now_ns < self._settled_ns + FORGOTTEN_NS:
            return
        self._settled_ns = now_ns
        old = [series for series, known in self._minutes.items() if known.last_ns < now_ns - FORGOTTEN_NS]
        self._write(old)
        for series in old:
            self._before.setdefault(series, self._minutes.pop(series))

    def finish(self) -> None:
        """Write the minutes that are going on."""
        self._write(list(self._minutes))

    def _write(self, every: list[int]) -> None:
        rows = [
            (series, known.minute, known.readings, known.known_ns, known.area, known.least, known.most, known.last_ns)
            for series in every
            if (known := self._minutes[series]).readings
        ]
        self._connection.executemany(_ADD, rows)
