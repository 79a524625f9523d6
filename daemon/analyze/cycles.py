"""How often a phase came round, by its samples in order of time. Pure.

A phase that is visited once a step shows as many steps as it has visits. Some visits fall between two samples and are
missed, and some of what lies between two visits is, so that these look like one. Both happen the more often the shorter
they are; how often, follows from Poisson sampling, and is added. Where that would be half as much again as was seen, or
where the visits come at no pace, the samples do not tell.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

MOST_ADDED = 1.5
LEAST_VISITS = 20
LEAST_OF_USUAL = 0.72  # of visits by chance the soonest quarter comes within 0.57 of the median
_BISECTIONS = 40


class Seen(NamedTuple):
    """An interval of a thread: whether the phase was on, and how many samples say so."""

    start_ns: int
    is_inside: bool
    samples: int


class Cycles(msgspec.Struct, frozen=True):
    """How often a phase came round, give or take ``error``; from its first visit to its last it took ``took_ns``."""

    count: float
    error: float
    took_ns: int


def count_cycles(intervals: Iterable[Seen]) -> Cycles | None:
    """Count the visits of a phase by the intervals of a thread in order of time.

    None where there are too few visits, where too many are missed, or where they come at no pace: then the samples are
    further apart than the steps.
    """
    starts: list[int] = []
    inside = outside = between = 0
    was_inside = False
    for seen in intervals:
        if seen.is_inside:
            if not was_inside:
                starts.append(seen.start_ns)
            inside, outside, between = inside + seen.samples, outside + between, 0
        elif starts:
            between += seen.samples
        was_inside = seen.is_inside
    if len(starts) < LEAST_VISITS or not outside or not _has_pace(starts):
        return None
    count = _solve(len(starts), inside, outside)
    if count is None:
        return None
    added = count - len(starts)
    # The added part is true where all visits are alike, and chance decides how many are missed.
    return Cycles(count, 1 + added + 2 * math.sqrt(added), starts[-1] - starts[0])


def _has_pace(starts: Sequence[int]) -> bool:
    """Say whether few visits follow on the one before much sooner than usual; later ones may have missed one.

    Where steps are shorter than the distance of samples, what is seen in one says nothing of the next, and visits come
    by chance.
    """
    lengths = [after - before for before, after in itertools.pairwise(starts)]
    lower, middle, _ = statistics.quantiles(lengths, n=4)
    return lower >= LEAST_OF_USUAL * middle


def expected_visits(count: float, inside: int, outside: int) -> float:
    """Return how many visits are seen of ``count``, with so many samples inside of them and between them in all."""
    missed, merged = math.exp(-inside / count), math.exp(-outside / count)
    return count * (1 - missed) * (1 - merged) / (1 - missed * merged)


def _solve(visits: int, inside: int, outside: int) -> float | None:
    """Return the count of which so many visits are seen; None where it is too large to be told."""
    lowest, highest = float(visits), visits * MOST_ADDED
    if expected_visits(highest, inside, outside) < visits:
        return None
    for _ in range(_BISECTIONS):
        middle = (lowest + highest) / 2
        if expected_visits(middle, inside, outside) < visits:
            lowest = middle
        else:
            highest = middle
    return highest
