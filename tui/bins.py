"""Time cut into bins that grow with the run, from which the strips of the timeline are drawn.

A bin holds, by key, how long the key was seen in it and the mean of its value. The number of bins
is bounded: when they run out, neighbors are merged and each bin becomes twice as long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence

import msgspec

from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.store.rollups import Grid

FINEST_NS = 125 * MILLISECOND_NS
MOST_BINS = 2048


class Ruler(msgspec.Struct, frozen=True):
    """The columns of a strip.

    Column ``i`` of ``count`` covers ``column_ns`` from ``from_ns + i * column_ns``.
    """

    from_ns: int
    column_ns: int
    count: int

    @property
    def to_ns(self) -> int:
        return self.from_ns + self.count * self.column_ns

    @property
    def grid(self) -> Grid:
        """The columns without an end.

        The first column begins before all times, so that every number is above 0.
        """
        return Grid(self.from_ns % self.column_ns, self.column_ns)

    @property
    def first(self) -> int:
        return self.from_ns // self.column_ns

    def column_of(self, at_ns: int) -> int:
        """Return the column in which a time lies.

        A result below 0, or from ``count`` on, means that it lies in none of them.
        """
        return (at_ns - self.from_ns) // self.column_ns

    def column_at(self, at_ns: int) -> tuple[int, int]:
        start_ns = self.from_ns + self.column_of(at_ns) * self.column_ns
        return start_ns, start_ns + self.column_ns

    @classmethod
    def filling(cls, from_ns: int, to_ns: int, columns: int) -> Ruler:
        length_ns = max(to_ns - from_ns, 1)
        column_ns = -(-length_ns // columns)
        return cls(from_ns, column_ns, -(-length_ns // column_ns))

    @classmethod
    def growing(cls, from_ns: int, to_ns: int, columns: int) -> Ruler:
        """Return the ruler for a time that goes on.

        What was drawn stays in place while time grows into the free columns; when none is left,
        each column becomes twice as long.
        """
        column_ns = FINEST_NS
        while to_ns - from_ns > columns * column_ns:
            column_ns *= 2
        return cls(from_ns, column_ns, max(-(-(to_ns - from_ns) // column_ns), 1))

    @classmethod
    def moving(cls, length_ns: int, to_ns: int, columns: int) -> Ruler:
        """Return the ruler for the last ``length_ns``, which moves on by whole columns."""
        column_ns = -(-length_ns // max(columns - 1, 1))
        from_ns = (to_ns - length_ns) // column_ns * column_ns
        return cls(from_ns, column_ns, min(-(-(to_ns - from_ns) // column_ns), columns))


class Weight(msgspec.Struct):
    """How long a key was seen, and the integral of its value over that time."""

    length_ns: int = 0
    area: float = 0.0


Bin = dict[Hashable, Weight]


class TimeBins:
    """Bins from ``origin_ns`` on; earlier time is left out."""

    def __init__(self, origin_ns: int, width_ns: int = FINEST_NS) -> None:
        self.origin_ns, self.width_ns = origin_ns, width_ns
        self._bins: list[Bin] = []

    def add(self, key: Hashable, from_ns: int, to_ns: int, value: float = 1.0) -> None:
        from_ns = max(from_ns, self.origin_ns)
        if to_ns <= from_ns:
            return
        while to_ns - self.origin_ns > MOST_BINS * self.width_ns:
            self._bins = [_merged(self._bins[at : at + 2]) for at in range(0, len(self._bins), 2)]
            self.width_ns *= 2
        missing = -(-(to_ns - self.origin_ns) // self.width_ns) - len(self._bins)
        self._bins.extend({} for _ in range(missing))
        first = (from_ns - self.origin_ns) // self.width_ns
        last = (to_ns - 1 - self.origin_ns) // self.width_ns
        for index in range(first, last + 1):
            start_ns = self.origin_ns + index * self.width_ns
            length_ns = min(to_ns, start_ns + self.width_ns) - max(from_ns, start_ns)
            weight = self._bins[index].setdefault(key, Weight())
            weight.length_ns += length_ns
            weight.area += value * length_ns

    def columns(self, ruler: Ruler) -> list[Bin]:
        """Return the bins merged, or repeated, into the columns of a ruler.

        Those before the origin are empty.
        """
        scale = ruler.column_ns / self.width_ns
        offset = (ruler.from_ns - self.origin_ns) / self.width_ns
        picks = [math.floor(offset + column * scale) for column in range(ruler.count + 1)]
        return [
            _merged(self._bins[max(a, 0) : max(b, a + 1, 0)]) for a, b in itertools.pairwise(picks)
        ]


def means_of_sum(bins: Sequence[Bin]) -> tuple[float | None, ...]:
    """Return the mean of the sum of all keys in each bin, over the time for which any was seen.

    None if none was seen. That time is taken to be the longest time of any key: a process that
    lives for a part of a bin, as workers do, counts for that part.
    """
    weights = [list(each.values()) for each in bins]
    return tuple(
        sum(one.area for one in each) / max(one.length_ns for one in each) if each else None
        for each in weights
    )


def means_of_means(bins: Sequence[Bin]) -> tuple[float | None, ...]:
    means = ([weight.area / weight.length_ns for weight in each.values()] for each in bins)
    return tuple(sum(each) / len(each) if each else None for each in means)


def _merged(bins: Sequence[Bin]) -> Bin:
    if len(bins) == 1:
        return bins[0]
    whole: Bin = {}
    for each in bins:
        for key, weight in each.items():
            total = whole.setdefault(key, Weight())
            total.length_ns += weight.length_ns
            total.area += weight.area
    return whole
