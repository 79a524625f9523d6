"""The lower envelope of a series, and the line along it. Pure; knows nothing of run files.

What a series comes back to says more of what it keeps than its mean does: work in between goes up and down.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence

import msgspec

BLOCKS = 20
MOST_POINTS = 2000
# A step by less than this part of the mean one is none.
STILL_SHARE = 0.15


class Block(msgspec.Struct, frozen=True):
    """A stretch of a series: its least value with the time of it, and its greatest."""

    at_s: float
    lowest: float
    highest: float


class Line(msgspec.Struct, frozen=True):
    """A robust line through the least values of blocks, with how sure it is.

    ``slope`` is a second, ``error`` its standard error, with what neighbors have in common taken into account: where
    the values bend or jump, it is large. ``grown`` is by how much the line rises in all, ``still_share`` from how many
    of the blocks to the next hardly anything changed, 0 to 1.
    """

    slope: float
    error: float
    grown: float
    still_share: float


def thinned(times_s: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the lowest and the highest point of each of many stretches where a series has more than is needed."""
    if len(times_s) <= MOST_POINTS:
        return list(times_s), list(values)
    kept: list[tuple[float, float]] = []
    for inside in _stretches(times_s, values, MOST_POINTS // 2):
        kept += sorted({min(inside, key=_value), max(inside, key=_value)})
    return [at_s for at_s, _ in kept], [value for _, value in kept]


def cut(times_s: Sequence[float], values: Sequence[float]) -> list[Block]:
    """Cut a series into equal stretches of time; those without a point are left out."""
    number = _numbering(times_s, BLOCKS)
    blocks = []
    begin = 0
    while begin < len(times_s):
        end = bisect.bisect_right(times_s, number(times_s[begin]), begin, key=number)
        lowest = min(values[begin:end])
        blocks.append(Block(times_s[values.index(lowest, begin)], lowest, max(values[begin:end])))
        begin = end
    return blocks


def fit(blocks: Sequence[Block]) -> Line:
    """Fit a line by the median of all slopes between two blocks (Theil and Sen), of which there are at least three."""
    times_s, values = [block.at_s for block in blocks], [block.lowest for block in blocks]
    slope = statistics.median(
        (after.lowest - before.lowest) / (after.at_s - before.at_s)
        for before, after in itertools.combinations(blocks, 2)
    )
    rest = [value - slope * at_s for at_s, value in zip(times_s, values, strict=True)]
    level = statistics.median(rest)
    grown = slope * (times_s[-1] - times_s[0])
    steps = [after - before for before, after in itertools.pairwise(values)]
    still = STILL_SHARE * abs(grown) / len(steps)
    return Line(
        slope=slope,
        error=_slope_error(times_s, [value - level for value in rest]),
        grown=grown,
        still_share=sum(abs(step) <= still for step in steps) / len(steps),
    )


def _stretches(times_s: Sequence[float], values: Sequence[float], count: int) -> Iterator[list[tuple[float, float]]]:
    """Yield the points in each of so many equal stretches of time."""
    number = _numbering(times_s, count)
    for _, inside in itertools.groupby(zip(times_s, values, strict=True), key=lambda point: number(point[0])):
        yield list(inside)


def _numbering(times_s: Sequence[float], count: int) -> Callable[[float], int]:
    """Return what numbers so many equal stretches of time."""
    first_s, length_s = times_s[0], (times_s[-1] - times_s[0]) / count
    return lambda at_s: min(int((at_s - first_s) / length_s), count - 1)


def _value(point: tuple[float, float]) -> float:
    return point[1]


def _slope_error(times_s: Sequence[float], rest: Sequence[float]) -> float:
    """Return the standard error of a slope from what the line leaves over."""
    count = len(rest)
    squares = sum(value * value for value in rest)
    if not squares:
        return 0.0
    alike = sum(before * after for before, after in itertools.pairwise(rest)) / squares
    # In so short a series, what a line leaves over looks less alike than it is.
    alike = min(max(alike + (1 + 4 * alike) / count, 0.0), 0.95)
    middle = statistics.fmean(times_s)
    spread = squares / (count - 2) / sum((at_s - middle) ** 2 for at_s in times_s)
    return math.sqrt(spread * (1 + alike) / (1 - alike))
