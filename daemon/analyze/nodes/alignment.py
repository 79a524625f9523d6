"""How far two clocks are apart, from what happened at the same moments on both. Pure: times are nanoseconds.

The moments are many, some are missing on either side, and each was seen only to within the distance of two samples.
Steps are alike, so that one may be taken for its neighbor: without a good guess only their uneven lengths tell.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence

import msgspec

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS

FEWEST_MATCHED = 20
_TRIED_EVERY_NS = 4 * MILLISECOND_NS
_MOST_LOOKED_UP = 500_000
_SURE = 4.0
_BLOCK_NS = 5 * SECOND_NS
_FEWEST_BLOCKS = 6
_DOUBT = 0.05
_OUTERMOST = 0.1
_FARTHEST_NS = 100 * MILLISECOND_NS


class Guess(msgspec.Struct, frozen=True):
    """Where the offset of the second clock to the first may be: ``offset_ns``, give or take ``reach_ns``."""

    offset_ns: int
    reach_ns: int


class Offset(msgspec.Struct, frozen=True):
    """By how much the second clock is ahead of the first, with its 95 % interval, from ``matched`` moments."""

    offset_ns: int
    low_ns: int
    high_ns: int
    matched: int


def align(first: Sequence[int], second: Sequence[int], guess: Guess) -> Offset | None:
    """Return by how much the second clock is ahead; None where the moments do not tell it from other offsets.

    ``first`` and ``second`` are the same moments by either clock, in order, each of them incomplete.
    """
    if min(len(first), len(second)) < FEWEST_MATCHED:
        return None
    # Each moment of the side that knows fewer is looked for on the other, which may know many more.
    if len(second) > len(first):
        turned = align(second, first, Guess(-guess.offset_ns, guess.reach_ns))
        return None if turned is None else Offset(
            -turned.offset_ns, -turned.high_ns, -turned.low_ns, turned.matched
        )  # fmt: skip
    found_ns = _search(first, second, guess)
    return None if found_ns is None else _refine(first, second, found_ns)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return between which of some values the median of their distribution lies, at least 95 times in 100.

    By order statistics: nothing is supposed of the distribution. All of them where they are too few to say.
    """
    ordered = sorted(values)
    count, below, left_out = len(ordered), 0.0, 0
    while left_out < (count - 1) // 2:
        below += math.comb(count, left_out) / 2**count
        if below > _DOUBT / 2:
            break
        left_out += 1
    rank = max(left_out - 1, 0)
    return ordered[rank], ordered[-1 - rank]


def _search(first: Sequence[int], second: Sequence[int], guess: Guess) -> int | None:
    """Return the offset at which moments meet best; None where another meets nearly as well."""
    steps = range(-guess.reach_ns, guess.reach_ns + 1, _TRIED_EVERY_NS)
    tried = [guess.offset_ns + step_ns for step_ns in steps]
    shown = second[:: -(-len(second) * len(tried) // _MOST_LOOKED_UP)]
    farthest_ns = _farthest(first)
    costs = [sum(_misses(first, shown, offset_ns, farthest_ns)) for offset_ns in tried]
    best_ns = tried[min(range(len(tried)), key=costs.__getitem__)]
    rivals = [at for at, offset_ns in enumerate(tried) if abs(offset_ns - best_ns) > farthest_ns]
    if not rivals:
        return best_ns
    rival_ns = tried[min(rivals, key=costs.__getitem__)]
    return best_ns if _is_better(first, shown, best_ns, rival_ns, farthest_ns) else None


def _is_better(
    first: Sequence[int], shown: Sequence[int], best_ns: int, rival_ns: int, farthest_ns: int
) -> bool:  # fmt: skip
    """Say whether moments meet better at one offset than at another by far more than chance has it."""
    gains = [
        rival - best
        for best, rival in zip(
            _misses(first, shown, best_ns, farthest_ns), _misses(first, shown, rival_ns, farthest_ns), strict=True
        )
    ]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return statistics.fmean(gains) > _SURE * error


def _farthest(first: Sequence[int]) -> int:
    """Return from which distance on two moments do not belong together: half of what is usual between neighbors."""
    distances = [after - before for before, after in itertools.pairwise(first)]
    return min(int(statistics.median(distances) / 2), _FARTHEST_NS)


def _misses(first: Sequence[int], second: Sequence[int], offset_ns: int, farthest_ns: int) -> list[int]:
    """Return how far each moment of the second clock is from the next one of the first, at most ``farthest_ns``."""
    return [min(abs(_difference(first, at_ns - offset_ns)), farthest_ns) for at_ns in second]


def _difference(first: Sequence[int], at_ns: int) -> int:
    """Return by how much a time is after the moment that is nearest to it."""
    place = bisect.bisect(first, at_ns)
    return min((at_ns - first[at] for at in (place - 1, place) if 0 <= at < len(first)), key=abs)


def _refine(first: Sequence[int], second: Sequence[int], offset_ns: int) -> Offset | None:
    """Return the mean offset of moments that belong together, and its interval."""
    farthest_ns = _farthest(first)
    differences = [(at_ns, _difference(first, at_ns - offset_ns)) for at_ns in second]
    matched = [(at_ns, difference) for at_ns, difference in differences if abs(difference) < farthest_ns]
    if len(matched) < FEWEST_MATCHED:
        return None
    center_ns = int(_center([difference for _, difference in matched]))
    low_ns, high_ns = median_interval(_independent(matched))
    return Offset(
        offset_ns + center_ns,
        offset_ns + min(int(low_ns), center_ns),
        offset_ns + max(int(high_ns), center_ns),
        len(matched),
    )


def _independent(matched: Sequence[tuple[int, int]]) -> list[float]:
    """Return what tells how far differences vary by chance: their means over stretches of a recording's length.

    Times within one recording are off together. Where there are few stretches, the differences themselves.
    """
    blocks: dict[int, list[int]] = {}
    for at_ns, difference in matched:
        blocks.setdefault(at_ns // _BLOCK_NS, []).append(difference)
    means = [_center(block) for block in blocks.values()]
    return means if len(means) >= _FEWEST_BLOCKS else [float(difference) for _, difference in matched]


def _center(differences: Sequence[int]) -> float:
    """Return the mean without the outermost tenth at either end.

    Not the median: samples come at even distances on both sides, so that differences take few values.
    """
    left_out = int(_OUTERMOST * len(differences))
    return statistics.fmean(sorted(differences)[left_out : len(differences) - left_out])
