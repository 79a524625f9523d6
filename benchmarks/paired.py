"""Statistics of paired measurements: what a pair's ratio is on average, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

# Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond the table the next lower one is used.
_T95 = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045}


class Effect(NamedTuple):
    """A relative change in percent: mean over pairs, 95 % interval, and the medians of both sides."""

    percent: float
    low: float
    high: float
    median_one: float
    median_other: float

    def __str__(self) -> str:
        return f"{self.percent:+.2f} % [{self.low:+.2f}, {self.high:+.2f}]"


def effect(pairs: Sequence[tuple[float, float]]) -> Effect:
    """Return by how many percent the first of a pair exceeds the second, from the logarithms of the ratios."""
    logs = [math.log(one / other) for one, other in pairs]
    mean = statistics.mean(logs)
    freedom = max((known for known in _T95 if known <= len(pairs) - 1), default=4)
    half = _T95[freedom] * statistics.stdev(logs) / math.sqrt(len(logs))
    percent, low, high = (100 * math.expm1(value) for value in (mean, mean - half, mean + half))
    ones, others = zip(*pairs, strict=True)
    return Effect(percent, low, high, statistics.median(ones), statistics.median(others))
