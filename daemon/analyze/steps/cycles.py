"""How often a phase came round, by its samples in order of time. Pure.

A phase that is visited once a step shows as many steps as it has visits. Some visits fall between two samples and are
missed, and some of what lies between two visits is, so that these look like one: the next one then comes after two or
three times the usual distance, and is counted so. Where distances vary too much for that, or are so long far more often
than chance has it, as many are added as Poisson sampling misses on the average. Where that would be half as much again
as was seen, or where the visits come at no pace, the samples do not tell. Time aside of the steps, as an
evaluation takes it, would look like visits that were missed: distances are those without it.
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
# By this share of a step the distance of two visits may differ from a whole number of steps, and so many must not.
WHOLE_SLACK = 0.3
LEAST_WHOLE = 0.75
MOST_BEYOND_CHANCE = 8.0
PAUSE_CHANCE = 0.05  # that so many visits in a row are missed once in a run
EDGES = 8
_BISECTIONS = 40
_REFINEMENTS = 4


class Seen(NamedTuple):
    """An interval of a thread: whether the phase was on, and how many samples say so.

    Aside no step is made, and a visit goes on after it only where it is inside: as a forward pass after compilation.
    """

    start_ns: int
    is_inside: bool
    samples: int
    is_aside: bool = False


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
    first_ns = last_ns = aside_ns = 0
    aside_from_ns: int | None = None
    inside = outside = between = 0
    was_inside = False
    for seen in intervals:
        if seen.is_aside:
            aside_from_ns = seen.start_ns if aside_from_ns is None else aside_from_ns
            was_inside = was_inside and seen.is_inside
            continue
        if aside_from_ns is not None:
            aside_ns, aside_from_ns = aside_ns + seen.start_ns - aside_from_ns, None
        if seen.is_inside:
            if not was_inside:
                first_ns, last_ns = first_ns if starts else seen.start_ns, seen.start_ns
                starts.append(seen.start_ns - aside_ns)
            inside, outside, between = inside + seen.samples, outside + between, 0
        elif starts:
            between += seen.samples
        was_inside = seen.is_inside
    if len(starts) < LEAST_VISITS or not outside or not _has_pace(starts):
        return None
    counted = _agreed(_count_whole(starts), _count_missed(starts, inside, outside), len(starts))
    return counted and msgspec.structs.replace(counted, took_ns=last_ns - first_ns)


def _agreed(whole: Cycles | None, missed: Cycles | None, visits: int) -> Cycles | None:
    """Return the count by distances, unless these are far more often twice as long as chance misses visits.

    Then it is steps that took longer, as on a machine that is short of CPU.
    """
    if whole is None or missed is None:
        return whole or missed
    excess = whole.count - missed.count
    if excess <= MOST_BEYOND_CHANCE * math.sqrt(max(missed.count - visits, 1)):
        return msgspec.structs.replace(whole, error=max(whole.error, excess))
    return msgspec.structs.replace(missed, error=max(missed.error, excess / 2))


def _count_whole(starts: Sequence[int]) -> Cycles | None:
    """Count by the distances of visits: each is a whole number of steps. None where too many are not."""
    lengths = [after - before for before, after in itertools.pairwise(starts)]
    step_ns = statistics.median(lengths)
    for _ in range(_REFINEMENTS):
        steps = _whole_steps(lengths, step_ns)
        step_ns = sum(length for length, number in zip(lengths, steps, strict=True) if number) / max(sum(steps), 1)
    odd = sum(abs(length / step_ns - number) > WHOLE_SLACK for length, number in zip(lengths, steps, strict=True))
    if odd > (1 - LEAST_WHOLE) * len(lengths):
        return None
    # What comes after a pause is one step on.
    count = 1 + sum(max(number, 1) for number in steps)
    # Visits before the first and after the last may have been missed too.
    missed = sum(number > 1 for number in steps) / len(steps)
    return Cycles(count, 1 + EDGES * missed + math.sqrt(odd) + 0.1 * odd, starts[-1] - starts[0])


def _whole_steps(lengths: Sequence[int], step_ns: float) -> list[int]:
    """Return how many steps each distance is; 0 for a pause, which is more than can have been missed in a row."""
    steps = [max(round(length / step_ns), 1) for length in lengths]
    missed = sum(number > 1 for number in steps) / len(steps)
    most = 1 + math.floor(math.log(PAUSE_CHANCE / len(steps)) / math.log(missed)) if 0 < missed < 1 else 1
    return [number if number <= most else 0 for number in steps]


def _count_missed(starts: Sequence[int], inside: int, outside: int) -> Cycles | None:
    """Count by how many visits are missed on the average."""
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
