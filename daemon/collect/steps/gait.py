"""How a loop moves: its rate lately, and by it which positions can follow on which. Pure.

A position is where the loop's counter was seen. Seen of a moving program, some are torn: what was read is another
variable's value, or half of one.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS

STRETCHES = 12
STRETCH_S = 4.0
STRETCH_STEPS = 3
LEAST_MARGIN = 0.01
FIRST_MARGIN = 0.1
SPREADS = 3.0
# What a torn reading shows often lies a little ahead; what surprises is believed once the next reading says the same.
EXPECTED_FACTOR = 1.25
EXPECTED_LESS_FACTOR = 2.0
EXPECTED_STEPS = 3
# Who starts over on the way makes less than half of the steps up to where it is seen.
KEEPING_SHARE = 0.6
KEEPING_STEPS = 2
SURPRISE_FACTOR = 5.0
SURPRISE_STEPS = 10
FASTER_FACTOR = 3.0
SLOWER_FACTOR = 1.5


class Position(NamedTuple):
    """Where a loop was: ``value`` in steps, ``outer`` the counter around it, where there is one.

    ``is_current`` says that the value is surely that of the round that the loop was in.
    """

    at_ns: int
    error_ns: int
    value: int
    outer: int | None
    is_current: bool = False


class _Stretch(NamedTuple):
    """A time for which the loop went on, and the steps that it made; ``error_s`` is that of its length."""

    from_ns: int
    to_ns: int
    steps: int
    error_s: float

    @property
    def took_s(self) -> float:
        """How long it lasted."""
        return (self.to_ns - self.from_ns) / SECOND_NS

    @property
    def rate_per_s(self) -> float:
        """Its steps a second."""
        return self.steps / self.took_s

    @property
    def is_short(self) -> bool:
        """Say whether it had better be longer, to tell the rate."""
        return self.took_s < STRETCH_S or self.steps < STRETCH_STEPS

    @property
    def margin_share(self) -> float:
        """By what share of it the rate may be wrong: a step at its ends, and the moments of both."""
        return 1 / max(self.steps, 1) + self.error_s / self.took_s


class Gait:
    """The rate of a loop, learned as it goes on."""

    def __init__(self, rate_per_s: float) -> None:
        """Begin with the rate that the loop was found with."""
        self._first_rate_per_s = rate_per_s
        self._stretches: deque[_Stretch] = deque(maxlen=STRETCHES)

    @property
    def rate_per_s(self) -> float:
        """Steps a second while it steps, lately; 0 where not known."""
        return _middle_rate([stretch for stretch in self._stretches if stretch.steps]) or self._first_rate_per_s

    @property
    def margin_share(self) -> float:
        """By what share the rate of some seconds may differ from that: by how exactly, and how evenly, it was seen."""
        known = [stretch for stretch in self._stretches if stretch.steps]
        if not known:
            return FIRST_MARGIN
        rate_per_s = self.rate_per_s
        spread = sum(abs(stretch.rate_per_s / rate_per_s - 1) * stretch.took_s for stretch in known)
        spread /= sum(stretch.took_s for stretch in known)
        return max(min(stretch.margin_share for stretch in known), SPREADS * spread, LEAST_MARGIN)

    def learn(self, before: Position, after: Position) -> None:
        """Learn from how the loop went on; where it stood still it paused, which says nothing of its rate."""
        if self.stood(before, after):
            return
        error_s = (before.error_ns + after.error_ns) / SECOND_NS
        took = _Stretch(before.at_ns, after.at_ns, after.value - before.value, error_s)
        # Short ones are put together where they adjoin: each ends with a part of a step that is not seen.
        if self._stretches and self._stretches[-1].to_ns == before.at_ns and self._stretches[-1].is_short:
            last = self._stretches.pop()
            took = took._replace(from_ns=last.from_ns, steps=last.steps + took.steps)
        self._stretches.append(took)

    def expected(self, before: Position, after: Position) -> float:
        """Return how many steps the loop makes in the time between two positions, by its rate."""
        return self.rate_per_s * (after.at_ns - before.at_ns) / SECOND_NS

    def margin_steps(self, before: Position, after: Position) -> float:
        """Return by how many steps that may be wrong."""
        moments_s = (before.error_ns + after.error_ns) / SECOND_NS
        return 1 + self.margin_share * self.expected(before, after) + self.rate_per_s * moments_s

    def behind_s(self, before: Position, after: Position) -> float:
        """Return by how many seconds a counter is behind where its rate would have led it: a cycle, or a pause."""
        return (after.at_ns - before.at_ns) / SECOND_NS - (after.value - before.value) / self.rate_per_s

    def rate_around(self, from_ns: int, to_ns: int) -> float:
        """Return the rate right before a time and right after it."""
        earlier = [stretch for stretch in self._stretches if stretch.to_ns <= from_ns and not stretch.is_short]
        later = [stretch for stretch in self._stretches if stretch.from_ns >= to_ns and not stretch.is_short]
        near = [*earlier[-1:], *later[:1]]
        return sum(stretch.rate_per_s for stretch in near) / len(near) if near else self.rate_per_s

    def stood(self, before: Position, after: Position) -> bool:
        """Say whether the loop stood still from one position to another, for longer than a step takes."""
        moments_s = (before.error_ns + after.error_ns) / SECOND_NS
        return after.value == before.value and self.expected(before, after) >= 1 + self.rate_per_s * moments_s

    def follows(self, before: Position, after: Position) -> bool:
        """Say whether a loop got from one position to another as its rate led to expect, or paused on the way."""
        grown = after.value - before.value
        return is_one_cycle(before, after) and grown >= 0 and self.may_make(grown, before, after)

    def may_make(self, steps: float, before: Position, after: Position) -> bool:
        """Say whether so many steps from one position to another are no surprise."""
        return steps <= EXPECTED_FACTOR * self.expected(before, after) + EXPECTED_STEPS

    def fits(self, before: Position, after: Position) -> bool:
        """Say whether a loop got from one position to another as its rate led to expect, without a pause."""
        least = self.expected(before, after) / EXPECTED_LESS_FACTOR - EXPECTED_STEPS
        return self.follows(before, after) and not self.stood(before, after) and after.value - before.value >= least

    def keeps_up(self, before: Position, after: Position) -> bool:
        """Say whether a loop went on so far that it cannot have started over on the way and caught up."""
        least = KEEPING_SHARE * self.expected(before, after) - KEEPING_STEPS
        return self.follows(before, after) and after.value - before.value >= least

    def can_make(self, steps: float, before: Position, after: Position) -> bool:
        """Say whether a loop can have made so many steps from one position to another, generously."""
        return steps <= SURPRISE_FACTOR * self.expected(before, after) + SURPRISE_STEPS


def _middle_rate(stretches: Sequence[_Stretch]) -> float:
    """Return the median rate by time, 0 of none: a pause that went unnoticed moves it little."""
    rates = sorted((stretch.rate_per_s, stretch.took_s) for stretch in stretches)
    half_s = sum(took_s for _, took_s in rates) / 2
    for rate_per_s, took_s in rates:
        half_s -= took_s
        if half_s <= 0:
            return rate_per_s
    return 0.0


def is_told_outside(before: Position, after: Position) -> bool:
    """Say whether it is known what the loop around did from one position to another."""
    return before.outer is not None and after.outer is not None


def is_one_cycle(before: Position, after: Position) -> bool:
    """Say whether the loop around has not gone on from one position to another, as far as is known."""
    return not is_told_outside(before, after) or before.outer == after.outer


def is_faster(gait: Gait, first: Position, second: Position, third: Position) -> bool:
    """Say whether a loop goes faster than its rate, from the first position on at one pace, but not beyond belief."""
    is_more = second.value - first.value > gait.expected(first, second)
    is_possible = gait.can_make(third.value - first.value, first, third)
    return is_more and is_possible and _is_one_pace(FASTER_FACTOR, first, second, third)


def has_changed(first: Position, others: Sequence[Position]) -> bool:
    """Say whether a loop goes at another rate, slower or much faster, from the first position on at one pace."""
    return _is_one_pace(SLOWER_FACTOR, first, *others)


def _is_one_pace(factor: float, *positions: Position) -> bool:
    """Say whether a counter grew by about as much a second from each position to the next, within one cycle."""
    pairs = list(itertools.pairwise(positions))
    paces = [(after.value - before.value) / (after.at_ns - before.at_ns) for before, after in pairs]
    return 0 < max(paces) <= factor * min(paces) and all(itertools.starmap(is_one_cycle, pairs))
