"""How often a phase came round, by its samples in order of time. Pure.

A phase that is visited once a step shows as many steps as it has visits. Some visits fall between two samples and are
missed, and some of what lies between two visits is, so that these look like one. Both happen the more often the shorter
they are; how often, follows from Poisson sampling, and is added. Where that would be half as much again as was seen,
the samples do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

MOST_ADDED = 1.5
LEAST_VISITS = 5
_BISECTIONS = 40


class Cycles(msgspec.Struct, frozen=True):
    """How often a phase came round, give or take ``error``, from the first visit seen to the end of the last one."""

    count: float
    error: float


def count_cycles(samples: Iterable[tuple[bool, int]]) -> Cycles | None:
    """Count the visits of a phase by what a thread's intervals say in order of time: (is in the phase, samples).

    None where there are too few visits, or where too many are missed.
    """
    visits = inside = outside = between = 0
    was_inside = False
    for is_inside, number in samples:
        if is_inside:
            visits += not was_inside
            inside, outside, between = inside + number, outside + between, 0
        elif visits:
            between += number
        was_inside = is_inside
    if visits < LEAST_VISITS or not outside:
        return None
    count = _solve(visits, inside, outside)
    if count is None:
        return None
    added = count - visits
    # The added part is true where all visits are alike, and chance decides how many are missed.
    return Cycles(count, 1 + added + 2 * math.sqrt(added))


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
