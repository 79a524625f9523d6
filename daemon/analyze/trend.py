"""Whether a series grows and gives nothing back, and how fast.

What only looks like growth has a form of its own. A cache that warms up slows down; a single allocation is one step;
epochs that allocate and free come back to where they were. So a series grows where its lower envelope rose evenly for
long enough, on ground where it had not been before. A cache that fills evenly for longer than that, and an epoch that
takes longer and holds on to all it makes, are called growing until they end: from outside nothing tells them apart.

What a series comes back to says more of what it keeps than its mean does: work in between goes up and down.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import msgspec

from profd.daemon.analyze.confidence import CONFIDENCE_95

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


LEAST_SPAN_S = 35.0
LEAST_POINTS = 18
LEAST_BLOCKS = 12
STARTUP_S = 20.0
STARTUP_SHARE = 0.1
# Where a window may begin, as shares of the time that is known; the later ones see past a start that took long.
STARTS = (0.0, 0.1, 0.2, 0.35, 0.5)
# Windows shorter than half of what is known, for growth that begins late.
LATE_SHARE = 0.45
LATE_SPANS_S = tuple(60.0 * 2 ** (half / 2) for half in range(32))
LATE_SLOWDOWN = 0.5
# In simulations of what is steady (tests/unit/analyze/test_trend.py) these let through less than one in a
# thousand. A slope has to be so many times its standard error: curves that bend and random walks look straighter than
# one would think.
LEAST_T = 24.0
MOST_STILL = 0.4
NEW_GROUND_SHARE = 0.1


class Trend(msgspec.Struct, frozen=True):
    """How a series went over its window: its slope a second with a 95 % interval, and whether that is growth.

    ``grew`` is by how much its lower envelope rose in the window.
    """

    start_s: float
    end_s: float
    slope_per_s: float
    low_per_s: float
    high_per_s: float
    grew: float
    is_growing: bool


def trend(times_s: Sequence[float], values: Sequence[float], *, least_growth: float) -> Trend | None:
    """Return how a series goes on: by a window up to its end in which it grows, else by all but its start.

    Times are in order. ``least_growth`` is what growth has to amount to, in the unit of the values. None where less
    than ``LEAST_SPAN_S`` is known.
    """
    if len(times_s) < LEAST_POINTS or times_s[-1] - times_s[0] < LEAST_SPAN_S:
        return None
    times_s, values = thinned(times_s, values)
    found = None
    for start_s in _starts(times_s):
        begin = bisect_left(times_s, start_s)
        if len(times_s) - begin < LEAST_POINTS:
            continue
        blocks = cut(times_s[begin:], values[begin:])
        if len(blocks) >= LEAST_BLOCKS:
            window = _Window(times_s, values, begin, blocks)
            found = found or window.trend(is_growing=False)
            if window.grows(least_growth):
                return window.trend(is_growing=True)
    return found


def _starts(times_s: Sequence[float]) -> Iterator[float]:
    """Yield when windows begin, that of everything but the start first."""
    known_s = times_s[-1] - times_s[0]
    spans_s = [known_s - _startup_s(known_s), *((1 - share) * known_s for share in STARTS)]
    spans_s += [span_s for span_s in LATE_SPANS_S if span_s < known_s / 2]
    for span_s in spans_s:
        if span_s >= LEAST_SPAN_S:
            yield times_s[-1] - span_s


def _startup_s(known_s: float) -> float:
    """Return how much of the beginning says nothing of what comes later: imports, loading a model, first batches."""
    return min(max(STARTUP_S, STARTUP_SHARE * known_s), known_s - LEAST_SPAN_S)


class _Window:
    """A series from one of its points to its end, with what came before."""

    def __init__(self, times_s: Sequence[float], values: Sequence[float], begin: int, blocks: Sequence[Block]) -> None:
        known_s = times_s[-1] - times_s[0]
        steady = min(bisect_left(times_s, times_s[0] + _startup_s(known_s)), begin)
        self._before_s, self._before = times_s[steady:begin], values[steady:begin]
        self._start_s, self._end_s = times_s[begin], times_s[-1]
        self._is_late = self._span_s < LATE_SHARE * known_s
        self._blocks = blocks
        self._line = fit(self._blocks)

    @property
    def _span_s(self) -> float:
        return self._end_s - self._start_s

    def grows(self, least_growth: float) -> bool:
        """Say whether the window shows growth."""
        swing = statistics.median(block.highest - block.lowest for block in self._blocks)
        return (
            self._line.grown >= max(least_growth, swing)
            and self._line.slope >= LEAST_T * self._line.error
            and self._line.still_share <= MOST_STILL
            and self._is_new_ground()
            and (not self._is_late or self._was_slower_before())
        )

    def trend(self, *, is_growing: bool) -> Trend:
        """Return the slope of the window."""
        line = self._line
        margin = CONFIDENCE_95 * line.error
        return Trend(
            start_s=self._start_s,
            end_s=self._end_s,
            slope_per_s=line.slope,
            low_per_s=line.slope - margin,
            high_per_s=line.slope + margin,
            grew=line.grown,
            is_growing=is_growing,
        )

    def _is_new_ground(self) -> bool:
        """Say whether the values were never as high before: what goes up and down with epochs was."""
        start = statistics.median(block.lowest for block in self._blocks[:3])
        return max(self._before, default=start) <= start + NEW_GROUND_SHARE * self._line.grown

    def _was_slower_before(self) -> bool:
        """Say whether growth began with the window: the last part of a curve that flattens out has a steeper past."""
        begin = bisect_left(self._before_s, self._start_s - self._span_s)
        if len(self._before) - begin < LEAST_POINTS:
            return False
        before = cut(self._before_s[begin:], self._before[begin:])
        return len(before) >= LEAST_BLOCKS and fit(before).slope <= LATE_SLOWDOWN * self._line.slope
