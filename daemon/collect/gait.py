"""How a loop moves: its rate lately, and by it which positions can follow on which. Pure.

A position is where the loop's counter was seen. Seen of a moving program, some are torn: what was read is another
variable's value, or half of one.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS

RATE_PAIRS = 7
EXPECTED_FACTOR = 2.0
EXPECTED_STEPS = 3
SURPRISE_FACTOR = 5.0
SURPRISE_STEPS = 10
LIKE_PACE = 3.0


class Position(NamedTuple):
    """Where a loop was: ``value`` in steps, ``outer`` the counter around it, where there is one."""

    at_ns: int
    error_ns: int
    value: int
    outer: int | None


class Gait:
    """The rate of a loop, learned as it goes on."""

    def __init__(self, rate_per_s: float) -> None:
        """Begin with the rate that the loop was found with."""
        self._first_rate_per_s = rate_per_s
        self._rates: deque[float] = deque(maxlen=RATE_PAIRS)

    @property
    def rate_per_s(self) -> float:
        """Steps a second while it steps, lately; 0 where not known."""
        return statistics.median(self._rates) if self._rates else self._first_rate_per_s

    def learn(self, before: Position, after: Position) -> None:
        """Learn from how the loop went on; where it stood still it paused, which says nothing of its rate."""
        if not self.stood(before, after):
            self._rates.append((after.value - before.value) * SECOND_NS / (after.at_ns - before.at_ns))

    def expected(self, before: Position, after: Position) -> float:
        """Return how many steps the loop makes in the time between two positions, by its rate."""
        return self.rate_per_s * (after.at_ns - before.at_ns) / SECOND_NS

    def misfit(self, before: Position, after: Position) -> float:
        """Return by how many steps the way from one position to another is not what was expected."""
        return abs(after.value - before.value - self.expected(before, after))

    def stood(self, before: Position, after: Position) -> bool:
        """Say whether the loop stood still from one position to another, for longer than a step takes."""
        return after.value == before.value and self.expected(before, after) >= 1

    def follows(self, before: Position, after: Position) -> bool:
        """Say whether a loop got from one position to another as its rate led to expect, or paused on the way."""
        grown = after.value - before.value
        return is_one_cycle(before, after) and grown >= 0 and self.may_make(grown, before, after)

    def may_make(self, steps: int, before: Position, after: Position) -> bool:
        """Say whether so many steps from one position to another are no surprise."""
        return steps <= EXPECTED_FACTOR * self.expected(before, after) + EXPECTED_STEPS

    def fits(self, before: Position, after: Position) -> bool:
        """Say whether a loop got from one position to another as its rate led to expect, without a pause."""
        least = self.expected(before, after) / EXPECTED_FACTOR - EXPECTED_STEPS
        return self.follows(before, after) and not self.stood(before, after) and after.value - before.value >= least

    def can_grow(self, before: Position, after: Position) -> bool:
        """Say whether a loop can have got from one position to another by going on."""
        grown = after.value - before.value
        return is_one_cycle(before, after) and grown >= 0 and self.can_make(grown, before, after)

    def can_make(self, steps: int, before: Position, after: Position) -> bool:
        """Say whether a loop can have made so many steps from one position to another, generously."""
        return steps <= SURPRISE_FACTOR * self.expected(before, after) + SURPRISE_STEPS


def is_one_cycle(before: Position, after: Position) -> bool:
    """Say whether the loop around has not gone on from one position to another, as far as is known."""
    return before.outer is None or after.outer is None or before.outer == after.outer


def is_like_pace(first: Position, second: Position, third: Position) -> bool:
    """Say whether a counter grew by about as much a second from the second position to the third as it had before."""
    early = (second.value - first.value) / (second.at_ns - first.at_ns)
    late = (third.value - second.value) / (third.at_ns - second.at_ns)
    is_steady = early / LIKE_PACE <= late <= early * LIKE_PACE
    return is_steady and is_one_cycle(first, second) and is_one_cycle(second, third)
