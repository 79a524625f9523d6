"""How far chance takes a number: 95 % intervals, and Student's t if values are few."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

CONFIDENCE_95 = 1.96


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of two values or more."""
    return statistics.stdev(values) / math.sqrt(len(values))


def likeness(deviations: Sequence[float]) -> float:
    """Return how alike neighbors of a series are, -1 to 1, by how far each is from the mean."""
    together = sum(one * other for one, other in itertools.pairwise(deviations))
    return together / sum(one * one for one in deviations)


def error_factor(alike: float) -> float:
    """Return how many times larger an error is as neighbors are alike."""
    return math.sqrt((1 + alike) / (1 - alike))


def margin(error: float) -> float:
    """Return half the width of the 95 % interval of a share with this standard error."""
    return CONFIDENCE_95 * error


def is_hint(share: float, error: float) -> bool:
    """Say whether the 95 % interval of a share is wider than the share, which says little then."""
    return 2 * margin(error) > share


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the values between which the median of their distribution lies, 95 times in 100.

    Order statistics assume nothing of the distribution. If the values are too few, return the
    lowest and the highest.
    """
    ordered = sorted(values)
    count, below, left_out = len(ordered), 0.0, 0
    while left_out < (count - 1) // 2:
        below += math.comb(count, left_out) / 2**count
        if below > 0.05 / 2:
            break
        left_out += 1
    rank = max(left_out - 1, 0)
    return ordered[rank], ordered[-1 - rank]


def student_95(freedom: int) -> float:
    """Return how many standard errors, with ``freedom`` degrees, a 95 % interval reaches."""
    return t_quantile(0.975, freedom)


@lru_cache(maxsize=1024)
def t_quantile(probability: float, freedom: int) -> float:
    """Return a quantile above the median for 1 or more degrees of freedom.

    ``probability`` is 0.5 to 1.
    """
    # From the normal quantile, in powers of 1 / freedom (Cornish and Fisher): from here on exact to
    # seven digits, and cheaper.
    if freedom >= 200:
        z = statistics.NormalDist().inv_cdf(probability)
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / freedom + second / freedom**2 + third / freedom**3
    low, high = 0.0, 1e9
    for _ in range(100):
        middle = (low + high) / 2
        if _within(middle, freedom) < 2 * probability - 1:
            low = middle
        else:
            high = middle
    return high


def _within(t: float, freedom: int) -> float:
    """Return how probable a value between -t and t is.

    The formulas are Abramowitz and Stegun 26.7.3 and 26.7.4, which are exact.
    """
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for number in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (number + 1) / (number + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
