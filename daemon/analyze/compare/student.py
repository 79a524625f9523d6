"""Student's t distribution: how many standard errors chance seldom goes beyond, however few values there are."""

from __future__ import annotations

import math

_HALVINGS = 100
_MOST = 1e9


def t_quantile(probability: float, freedom: int) -> float:
    """Return a quantile above the median, ``probability`` 0.5 to 1, for 1 or more degrees of freedom."""
    low, high = 0.0, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _within(middle, freedom) < 2 * probability - 1:
            low = middle
        else:
            high = middle
    return high


def _within(t: float, freedom: int) -> float:
    """Return how probable a value between -t and t is (Abramowitz and Stegun 26.7.3 and 26.7.4, which are exact)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for number in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (number + 1) / (number + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
