"""Whether a quantity that was read now and then stays flat: its slope, its growth, and the bounds
for both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

HOUR_S = 3600.0
Readings = Sequence[tuple[float, float]]
"""(seconds since the start, value), in order of time."""


class Trend(NamedTuple):
    """How a quantity went after it had settled.

    ``per_hour`` is the slope of a least-squares line, ``growth`` the mean of the last quarter of
    the time less that of the first quarter, ``highest`` the largest reading of all, the unsettled
    ones included.
    """

    per_hour: float
    growth: float
    highest: float


class Bound(NamedTuple):
    """What a quantity may not exceed; None where nothing is asked."""

    highest: float | None = None
    per_hour: float | None = None

    def breaches(self, trend: Trend) -> list[str]:
        """Return in words what is exceeded."""
        found = []
        if self.highest is not None and trend.highest > self.highest:
            found.append(f"{trend.highest:,.1f} is more than {self.highest:,.1f}")
        if self.per_hour is not None and trend.per_hour > self.per_hour:
            found.append(f"grows by {trend.per_hour:,.1f} an hour, more than {self.per_hour:,.1f}")
        return found


def take_trend(readings: Readings, settled_s: float) -> Trend:
    """Return how a quantity went from ``settled_s`` on.

    Raises ValueError where fewer than two readings come after that.
    """
    settled = [reading for reading in readings if reading[0] >= settled_s]
    if len(settled) < 2:
        raise ValueError(f"no two readings after {settled_s:.0f} s")
    times, values = zip(*settled, strict=True)
    quarter = max(len(values) // 4, 1)
    return Trend(
        per_hour=statistics.linear_regression(times, values).slope * HOUR_S,
        growth=statistics.mean(values[-quarter:]) - statistics.mean(values[:quarter]),
        highest=max(value for _, value in readings),
    )
