"""Whether a series grows and gives nothing back, and how fast.

Series that only seem to grow have forms of their own. A cache that warms up slows down; a single
allocation is one step; epochs that allocate and free come back to where they were. So a series
grows if its lower envelope rose evenly for long enough, to values that it had not had before. A
cache that fills evenly for longer than that, and an epoch that takes longer and keeps all it makes,
are called growing until they end: from outside they look alike.

The values that a series comes back to say more of what it keeps than its mean: work in between goes
up and down.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.confidence import CONFIDENCE_95, error_factor, likeness

LEAST_SPAN_S = 35.0
LEAST_POINTS = 18
LEAST_BLOCKS = 12
BLOCKS = 20
MOST_POINTS = 2000


class Trend(msgspec.Struct, frozen=True):
    """How a series went over its window: its slope a second, and whether that is growth.

    The slope has a 95 % interval. ``grew`` is by how much the lower envelope rose in the window.
    """

    start_s: float
    end_s: float
    slope_per_s: float
    low_per_s: float
    high_per_s: float
    grew: float
    is_growing: bool


def trend(
    times_s: Sequence[float], values: Sequence[float], *, least_growth: float
) -> Trend | None:
    """Return how a series goes on, by a window up to its end in which it grows.

    Without such a window it is by all but the start; None if less than ``LEAST_SPAN_S`` is known.
    Times are in order. ``least_growth`` is what growth has to amount to, in the unit of the values.
    """
    if len(times_s) < LEAST_POINTS or times_s[-1] - times_s[0] < LEAST_SPAN_S:
        return None
    times_s, values = _thinned(times_s, values)
    known_s = times_s[-1] - times_s[0]
    # The beginning says nothing of what comes later: imports, loading a model, first batches.
    startup_s = min(max(20.0, 0.1 * known_s), known_s - LEAST_SPAN_S)
    # Windows that begin later leave out a long start, short ones show growth that begins late.
    spans_s = [
        known_s - startup_s,
        *((1 - share) * known_s for share in (0.0, 0.1, 0.2, 0.35, 0.5)),
    ]
    spans_s += [span_s for half in range(32) if (span_s := 60.0 * 2 ** (half / 2)) < known_s / 2]
    steady = bisect_left(times_s, times_s[0] + startup_s)
    found = None
    for span_s in spans_s:
        begin = bisect_left(times_s, times_s[-1] - span_s)
        is_pause = times_s[begin] == times_s[-1]  # on an axis of steps
        if is_pause or span_s < LEAST_SPAN_S or len(times_s) - begin < LEAST_POINTS:
            continue
        blocks = _cut(times_s[begin:], values[begin:])
        if len(blocks) < LEAST_BLOCKS:
            continue
        line = _fit(blocks)
        margin = CONFIDENCE_95 * line.error
        slopes = line.slope, line.slope - margin, line.slope + margin
        window = Trend(times_s[begin], times_s[-1], *slopes, line.grown, is_growing=False)
        found = found or window
        if not _grows(blocks, line, values[steady:begin], least_growth):
            continue
        # The last part of a curve that flattens out has a steeper past.
        length_s = times_s[-1] - times_s[begin]
        before = slice(max(bisect_left(times_s, times_s[begin] - length_s), steady), begin)
        is_late = length_s < 0.45 * known_s
        if not is_late or _was_slower(times_s[before], values[before], line.slope):
            return msgspec.structs.replace(window, is_growing=True)
    return found


def _was_slower(times_s: Sequence[float], values: Sequence[float], slope: float) -> bool:
    """Say whether a series grew less before a window: growth begins with the window then."""
    if len(times_s) < LEAST_POINTS:
        return False
    blocks = _cut(times_s, values)
    return len(blocks) >= LEAST_BLOCKS and _fit(blocks).slope <= slope / 2


def _grows(
    blocks: Sequence[_Block], line: _Line, before: Sequence[float], least_growth: float
) -> bool:
    swing = statistics.median(block.highest - block.lowest for block in blocks)
    start = statistics.median(block.lowest for block in blocks[:3])
    # In simulations of steady series (tests/unit/analyze/test_trend.py) these let less than one in
    # a thousand pass. A slope has to be many times its standard error: curves that bend and random
    # walks look straighter than one would think.
    return (
        line.grown >= max(least_growth, swing)
        and line.slope >= 24 * line.error
        and line.still_share <= 0.4
        and max(before, default=start) <= start + 0.1 * line.grown
    )


class _Block(NamedTuple):
    """A stretch of a series: its least value with its time, and its greatest value."""

    at_s: float
    lowest: float
    highest: float


class _Line(NamedTuple):
    """A robust line through the least values of blocks, with how sure it is.

    ``slope`` is per second, ``error`` its standard error, which allows for what neighbors have in
    common: it is large if the values bend or jump. ``grown`` is by how much the line rises in all,
    ``still_share`` the share of blocks after which hardly anything changed, 0 to 1.
    """

    slope: float
    error: float
    grown: float
    still_share: float


def _thinned(
    times_s: Sequence[float], values: Sequence[float]
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the lowest and the highest point of many equally long stretches of a series.

    A series with few points is returned whole.
    """
    if len(times_s) <= MOST_POINTS:
        return times_s, values
    length = math.ceil(len(values) / (MOST_POINTS // 2))
    kept: list[int] = []
    for begin in range(0, len(values), length):
        stretch = range(begin, min(begin + length, len(values)))
        kept += sorted({f(stretch, key=values.__getitem__) for f in (min, max)})
    return [times_s[at] for at in kept], [values[at] for at in kept]


def _cut(times_s: Sequence[float], values: Sequence[float]) -> list[_Block]:
    """Return the blocks of a series, each of equally long time; without those that have nothing."""
    length_s = (times_s[-1] - times_s[0]) / BLOCKS
    ends = [bisect_left(times_s, times_s[0] + number * length_s) for number in range(1, BLOCKS)]
    blocks = []
    for begin, end in itertools.pairwise([0, *ends, len(times_s)]):
        if inside := values[begin:end]:
            lowest = min(inside)
            at = begin + inside.index(lowest)
            blocks.append(_Block(times_s[at], lowest, max(inside)))
    return blocks


def _fit(blocks: Sequence[_Block]) -> _Line:
    """Fit a line by the median of all slopes between two of three or more blocks (Theil, Sen)."""
    times_s, values = [block.at_s for block in blocks], [block.lowest for block in blocks]
    slope = statistics.median(
        (after.lowest - before.lowest) / (after.at_s - before.at_s)
        for before, after in itertools.combinations(blocks, 2)
    )
    rest = [value - slope * at_s for at_s, value in zip(times_s, values, strict=True)]
    level = statistics.median(rest)
    grown = slope * (times_s[-1] - times_s[0])
    steps = [after - before for before, after in itertools.pairwise(values)]
    still = 0.15 * abs(grown) / len(steps)  # a step by less than this part of the mean one is none
    still_share = sum(abs(step) <= still for step in steps) / len(steps)
    return _Line(
        slope, _slope_error(times_s, [value - level for value in rest]), grown, still_share
    )


def _slope_error(times_s: Sequence[float], rest: Sequence[float]) -> float:
    count = len(rest)
    squares = sum(value * value for value in rest)
    if not squares:
        return 0.0
    alike = likeness(rest)
    # In so short a series, residuals look less alike than they are.
    alike = min(max(alike + (1 + 4 * alike) / count, 0.0), 0.95)
    middle = statistics.fmean(times_s)
    spread = squares / (count - 2) / sum((at_s - middle) ** 2 for at_s in times_s)
    return math.sqrt(spread) * error_factor(alike)
