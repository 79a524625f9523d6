"""Statistics of paired measurements: the mean ratio of pairs, how sure it is, and whether it is
more than chance.

Every pair counts: none is left out, however far off it lies.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from profd.daemon.analyze.confidence import student_95

Pairs = Sequence[tuple[float, float]]

_MOST_CHOICES = 100_000
_SIGNIFICANT = 0.05


class Effect(NamedTuple):
    """A relative change in percent: mean over pairs, 95 % interval, and the medians of both sides."""

    percent: float
    low: float
    high: float
    median_one: float
    median_other: float

    def __str__(self) -> str:
        return f"{self.percent:+.2f} % [{self.low:+.2f}, {self.high:+.2f}]"

    def as_ratio(self) -> str:
        """Return the change as a ratio with its interval."""
        one, low, high = (1 + value / 100 for value in (self.percent, self.low, self.high))
        return f"{one:.2f} [{low:.2f}, {high:.2f}]"


class Distinction(NamedTuple):
    """Whether an effect is more than chance.

    ``percent`` is its distance to the null control, ``p`` how often chance alone gives one as
    large.
    """

    percent: float
    p: float

    def __str__(self) -> str:
        verdict = "distinguishable" if self.p < _SIGNIFICANT else "not distinguishable"
        return (
            f"{verdict} from the null control (difference {self.percent:+.2f} %, p = {self.p:.2g})"
        )


def effect(pairs: Pairs) -> Effect:
    """Return by how many percent the first of a pair exceeds the second, from the logarithms of the
    ratios.

    Needs two pairs or more.
    """
    logs = _logs(pairs)
    mean = statistics.mean(logs)
    half = student_95(len(pairs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    percent, low, high = (100 * math.expm1(value) for value in (mean, mean - half, mean + half))
    ones, others = zip(*pairs, strict=True)
    return Effect(percent, low, high, statistics.median(ones), statistics.median(others))


def distinguish(pairs: Pairs, nulls: Pairs) -> Distinction:
    """Return whether pairs differ by more than chance from the null pairs that were taken in the
    same rounds.

    A permutation test: if the treatment did nothing, it would be arbitrary which of a round's two
    ratios is called the treated one. So they are exchanged in every possible choice of rounds, or
    in 100,000 random ones, and p is the share of choices whose mean difference is at least as large
    as the one measured, in either direction.
    """
    logs = zip(_logs(pairs), _logs(nulls), strict=True)
    differences = [treated - control for treated, control in logs]
    measured = abs(sum(differences)) * (
        1 - 1e-9
    )  # what is the same sum in another order counts as the same
    beyond = choices = 0
    for signs in _signs(len(differences)):
        beyond += abs(sum(map(operator.mul, signs, differences))) >= measured
        choices += 1
    return Distinction(100 * math.expm1(statistics.mean(differences)), beyond / choices)


def _logs(pairs: Pairs) -> list[float]:
    return [math.log(one / other) for one, other in pairs]


def _signs(count: int) -> Iterator[Sequence[int]]:
    """Yield choices of signs: all, or, where those are too many, random ones after that which
    leaves all as it was.
    """
    if 2**count <= _MOST_CHOICES:
        yield from itertools.product((1, -1), repeat=count)
        return
    yield [1] * count
    chance = random.Random(1)
    for _ in range(_MOST_CHOICES - 1):
        yield chance.choices((1, -1), k=count)
