"""A union of ranges of time: what recordings cover, when a condition held."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class IntervalSet:
    """A union of ranges of time, added in order of their start."""

    __slots__ = ("_before", "_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._before: list[int] = []

    def add(self, start_ns: int, end_ns: int) -> None:
        """Cover [start_ns, end_ns) too; what is covered already counts once."""
        if self._ends and start_ns <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], end_ns)
        elif end_ns > start_ns:
            self._before.append(self.length_ns)
            self._starts.append(start_ns)
            self._ends.append(end_ns)

    @property
    def length_ns(self) -> int:
        """How much is covered in all."""
        return self._before[-1] + self._ends[-1] - self._starts[-1] if self._ends else 0

    @property
    def start_ns(self) -> int | None:
        """When the first range begins; None where there is none."""
        return self._starts[0] if self._starts else None

    @property
    def end_ns(self) -> int | None:
        """When the last range ends; None where there is none."""
        return self._ends[-1] if self._ends else None

    def until(self, at_ns: int) -> int:
        """Return how much is covered before a time."""
        index = bisect_right(self._starts, at_ns) - 1
        if index < 0:
            return 0
        return self._before[index] + min(at_ns, self._ends[index]) - self._starts[index]

    def between(self, from_ns: int, to_ns: int) -> int:
        """Return how much of [from_ns, to_ns) is covered."""
        return max(self.until(to_ns) - self.until(from_ns), 0)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges, (start_ns, end_ns), in order; they neither touch nor overlap."""
        return zip(self._starts, self._ends, strict=True)

    def ranges_between(self, from_ns: int, to_ns: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of the ranges that lie in [from_ns, to_ns)."""
        for index in range(max(bisect_right(self._starts, from_ns) - 1, 0), len(self._starts)):
            if self._starts[index] >= to_ns:
                return
            start_ns, end_ns = max(self._starts[index], from_ns), min(self._ends[index], to_ns)
            if start_ns < end_ns:
                yield start_ns, end_ns

    def edges(self) -> list[tuple[int, int]]:
        """Return the times at which a range begins or ends, each with how much is covered before it."""
        found = []
        for start_ns, end_ns, before in zip(self._starts, self._ends, self._before, strict=True):
            found += [(start_ns, before), (end_ns, before + end_ns - start_ns)]
        return found


def united(one: IntervalSet, other: IntervalSet) -> IntervalSet:
    """Return the time that lies in either."""
    union = IntervalSet()
    for start_ns, end_ns in sorted([*one.ranges(), *other.ranges()]):
        union.add(start_ns, end_ns)
    return union


def common(one: IntervalSet, other: IntervalSet) -> IntervalSet:
    """Return the time that lies in both."""
    both = IntervalSet()
    for start_ns, end_ns in one.ranges():
        for from_ns, to_ns in other.ranges_between(start_ns, end_ns):
            both.add(from_ns, to_ns)
    return both


class IntervalCursor:
    """How much of ranges is covered, where each range that is asked for starts no earlier than the one before."""

    __slots__ = ("_at", "_cover", "_ends", "_starts")

    def __init__(self, cover: IntervalSet) -> None:
        self._cover, self._starts, self._ends, self._at = cover, cover._starts, cover._ends, 0

    def between(self, from_ns: int, to_ns: int) -> int:
        """Return how much of [from_ns, to_ns) is covered."""
        ends, at = self._ends, self._at
        count = len(ends)
        while at < count and ends[at] <= from_ns:
            at += 1
        self._at = at
        if at == count or self._starts[at] >= to_ns:
            return 0
        if self._starts[at] <= from_ns and to_ns <= ends[at]:
            return to_ns - from_ns
        return self._cover.between(from_ns, to_ns)
