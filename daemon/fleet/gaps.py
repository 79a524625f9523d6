"""Whether two groups of values differ by more than chance explains: Student's t for their means, nothing else."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from profd.daemon.analyze.certainty.confidence import t_quantile

SURE = 0.95


class Gap(NamedTuple):
    """By how much the mean of one group is above that of another, with its standard error and degrees of freedom.

    ``weight`` is how many values it is worth.
    """

    value: float
    error: float
    freedom: int
    weight: float = 1.0

    def bounds(self, comparisons: int) -> tuple[float, float]:
        """Return bounds that hold for so many comparisons at once, 95 times in 100."""
        width = t_quantile(1 - (1 - SURE) / (2 * max(comparisons, 1)), self.freedom) * self.error
        return self.value - width, self.value + width


def gap(new: Sequence[float], base: Sequence[float]) -> Gap | None:
    """Return the gap of two groups that each tell how much they vary (Welch); None where one has a single value."""
    if min(len(new), len(base)) < 2:
        return None
    one, other = statistics.variance(new) / len(new), statistics.variance(base) / len(base)
    error = math.sqrt(one + other)
    freedom = len(new) + len(base) - 2.0
    if error:
        freedom = (one + other) ** 2 / (one**2 / (len(new) - 1) + other**2 / (len(base) - 1))
    return Gap(statistics.fmean(new) - statistics.fmean(base), error, max(int(freedom), 1))


def pooled_gap(new: Sequence[float], base: Sequence[float]) -> Gap | None:
    """Return the gap of two groups that vary alike, of which one may have a single value; None of three in all."""
    freedom = len(new) + len(base) - 2
    if not new or not base or freedom < 2:
        return None
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in (new, base) if len(values) > 1)
    weight = 1 / (1 / len(new) + 1 / len(base))
    return Gap(statistics.fmean(new) - statistics.fmean(base), math.sqrt(squares / freedom / weight), freedom, weight)


def combined(gaps: Sequence[Gap]) -> Gap:
    """Return the mean of gaps of the same thing, each as much as it has values (Satterthwaite's degrees of freedom).

    Not by how exact each seems: of few values, those that are alike by chance would count most, and promise too much.
    """
    whole = sum(one.weight for one in gaps)
    squares = [(one.weight / whole * one.error) ** 2 for one in gaps]
    doubt = sum(square**2 / one.freedom for square, one in zip(squares, gaps, strict=True))
    freedom = sum(squares) ** 2 / doubt if doubt else sum(one.freedom for one in gaps)
    value = sum(one.weight / whole * one.value for one in gaps)
    return Gap(value, math.sqrt(sum(squares)), max(int(freedom), 1), whole)
