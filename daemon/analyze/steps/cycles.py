"""How often a phase came round, by its samples in order of time. Pure.

A phase that is visited once a step shows as many steps as it has visits. Some visits fall between two samples and are
missed, so that two steps look like one: the next visit then comes after two or three times the usual distance, and is
counted so. A step that took so long by itself looks the same, so all that was added may be wrong. Where visits come at
no pace, the samples do not tell. Time aside of the steps, as an evaluation takes it, is left out of the distances.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

LEAST_VISITS = 20
LEAST_OF_USUAL = 0.72  # of visits by chance the soonest quarter comes within 0.57 of the median
# By this share of a step the distance of two visits may differ from a whole number of steps, and so many must not.
WHOLE_SLACK = 0.3
LEAST_WHOLE = 0.75
MOST_ADDED = 0.5
PAUSE_CHANCE = 0.05  # that so many visits in a row are missed once in a run
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
    was_inside = has_left = False
    for seen in intervals:
        if seen.is_aside:
            aside_from_ns = seen.start_ns if aside_from_ns is None else aside_from_ns
            was_inside = was_inside and seen.is_inside
            continue
        if aside_from_ns is not None:
            aside_ns, aside_from_ns = aside_ns + seen.start_ns - aside_from_ns, None
        if seen.is_inside and not was_inside:
            first_ns, last_ns = first_ns if starts else seen.start_ns, seen.start_ns
            starts.append(seen.start_ns - aside_ns)
        has_left = has_left or (bool(starts) and not seen.is_inside)
        was_inside = seen.is_inside
    if len(starts) < LEAST_VISITS or not has_left or not _has_pace(starts):
        return None
    return _count_whole(starts, last_ns - first_ns)


def _count_whole(starts: Sequence[int], took_ns: int) -> Cycles | None:
    """Count by the distances of visits: each is a whole number of steps. None where too many are not."""
    lengths = [after - before for before, after in itertools.pairwise(starts)]
    step_ns = statistics.median(lengths)
    for _ in range(_REFINEMENTS):
        steps = _whole_steps(lengths, step_ns)
        step_ns = sum(length for length, number in zip(lengths, steps, strict=True) if number) / max(sum(steps), 1)
    odd = sum(abs(length / step_ns - number) > WHOLE_SLACK for length, number in zip(lengths, steps, strict=True))
    # What comes after a pause is one step on.
    made = [max(number, 1) for number in steps]
    added = sum(made) - len(made)
    if odd > (1 - LEAST_WHOLE) * len(lengths) or added > MOST_ADDED * len(made):
        return None
    # Visits before the first and after the last may have been missed too.
    return Cycles(1 + sum(made), 1 + added + math.sqrt(odd) + 0.1 * odd, took_ns)


def _whole_steps(lengths: Sequence[int], step_ns: float) -> list[int]:
    """Return how many steps each distance is; 0 for a pause, which is more than can have been missed in a row."""
    steps = [max(round(length / step_ns), 1) for length in lengths]
    missed = sum(number > 1 for number in steps) / len(steps)
    most = 1 + math.floor(math.log(PAUSE_CHANCE / len(steps)) / math.log(missed)) if 0 < missed < 1 else 1
    return [number if number <= most else 0 for number in steps]


def _has_pace(starts: Sequence[int]) -> bool:
    """Say whether few visits follow on the one before much sooner than usual; later ones may have missed one.

    Where steps are shorter than the distance of samples, what is seen in one says nothing of the next, and visits come
    by chance.
    """
    lengths = [after - before for before, after in itertools.pairwise(starts)]
    lower, middle, _ = statistics.quantiles(lengths, n=4)
    return lower >= LEAST_OF_USUAL * middle
