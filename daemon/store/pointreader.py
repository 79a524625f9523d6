"""The readings of a run file: the points of its series, by range of time."""

from __future__ import annotations

from profd.daemon.store.rows import PointRow
from profd.daemon.store.runfile import RunFile, time_range
from profd.daemon.store.sums.held import READINGS

_LATEST_NS = 1 << 62


class PointReader(RunFile):
    """An open run file with its readings."""

    def points(self, series: int, from_ns: int | None = None, to_ns: int | None = None) -> list[PointRow]:
        """Return the points of a series in [from_ns, to_ns), in order of time."""
        where, values = time_range("at_ns", from_ns, to_ns)
        sql = f"SELECT at_ns, value FROM point WHERE series = ? AND {where} ORDER BY at_ns"
        return [PointRow(*row) for row in self.select(PointRow, sql, series, *values)]

    def readings(self, series: int, from_ns: int | None = None, to_ns: int | None = None) -> list[PointRow]:
        """Return the points of a series that tell of [from_ns, to_ns), each of the time since the one before it.

        So many come before the range as tell what distance is usual, and one beyond its end.
        """
        if from_ns is None and to_ns is None:
            return self.points(series)
        times = {"from": from_ns or 0, "to": _LATEST_NS if to_ns is None else to_ns}
        return [PointRow(*row) for row in self.select(PointRow, READINGS, series=series, **times)]

    def last_point(self, series: int, to_ns: int | None = None) -> PointRow | None:
        """Return the newest point of a series, of those before a time where one is given."""
        sql = "SELECT at_ns, value FROM point WHERE series = ? AND at_ns < ? ORDER BY at_ns DESC LIMIT 1"
        rows = self.select(PointRow, sql, series, _LATEST_NS if to_ns is None else to_ns)
        return PointRow(*rows[0]) if rows else None
