"""Adds up the steps of a loop from what is seen of its counter, over all the times that it starts over. Pure.

How many steps lie between two sightings is plain while the counter grows. Where it has started over, the steps of a
whole cycle (an epoch) have to be known (``cyclelength``). Counts are held back until they are, for two cycles at most.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.cyclelength import CycleLength
from profd.daemon.collect.gait import Gait, Position, is_like_pace
from profd.daemon.collect.sightings import Sighting

CLOSE_SHARE = 0.02
HELD_SHARE = 0.05
CYCLES_HELD = 2
CYCLES_PROBED = 12
SOONEST_S = 0.25


class Count(NamedTuple):
    """The steps made by ``at_ns``, give or take ``error_steps`` against the first count."""

    at_ns: int
    steps: int
    error_steps: float


class _Reached(NamedTuple):
    """What is certain of a position: the sum of all differences of the counter, and how often it started over."""

    position: Position
    difference: int
    cycles: int


class Odometer:
    """The steps of one loop; counts begin at the value that its counter was first seen with."""

    def __init__(self, stride: int = 1, rate_per_s: float = 0.0) -> None:
        """Begin with the stride and the rate that the loop was found with."""
        self._stride = stride
        self._gait = Gait(rate_per_s)
        self._length = CycleLength()
        self._last: _Reached | None = None
        self._doubted: list[Position] = []
        self._held: list[_Reached] = []
        self._has_waited = False
        self._settled = _Reached(Position(0, 0, 0, None), 0, 0)
        self._settled_steps = 0
        self._settled_error = 0.0

    @property
    def doubts(self) -> int:
        """How many sightings in a row have made no sense so far."""
        return len(self._doubted)

    def take(self, seen: Sighting, outer: int | None = None) -> list[Count]:
        """Take in a sighting; return the counts that are known now and were not before, in order of time.

        A value that is not what the ones before it led to expect counts once the next ones have confirmed it.
        """
        position = Position(seen.at_ns, seen.error_ns, seen.value // self._stride, outer)
        if self._last is None:
            return self._begin(position)
        last = self._last.position
        if self._doubted and (believed := self._believed(last, position)):
            self._doubted = []
            return [count for one in believed for count in self._believe(one)]
        if not self._doubted and self._gait.follows(last, position):
            return self._advance(position)
        if self._goes_on_outside(last, position):
            self._doubted = []
            return self._start_over(position)
        self._doubted.append(position)
        return []

    def learn_outer(self, value: int) -> None:
        """Learn what the counter around showed when the loop's own was seen last: it was not known to be one."""
        if self._last is not None and self._last.position.outer is None:
            self._last = self._last._replace(position=self._last.position._replace(outer=value))

    def rest(self) -> list[Count]:
        """Return the counts that are held back, such as they are."""
        held, self._held = self._held, []
        return [self._settle(reached) for reached in held]

    def cycle_s(self) -> float:
        """Return how long a cycle lasts, as far as one was seen: at least that long."""
        rate_per_s = self._gait.rate_per_s
        return self._length.estimate()[0] / rate_per_s if rate_per_s else 0.0

    def due_s(self) -> float | None:
        """Return in how many seconds, from the last sighting on, one more would say most about a cycle's length.

        None where that is known well, cannot be known better, or where the counter never started over.
        """
        rate_per_s = self._gait.rate_per_s
        if self._last is None or not rate_per_s or not self._length.has_ended:
            return None
        if self._last.cycles > CYCLES_PROBED or self._length.is_within(CLOSE_SHARE):
            return None
        return max((self._length.halfway() - self._last.position.value) / rate_per_s, SOONEST_S)

    # What is believed

    def _believed(self, last: Position, position: Position) -> list[Position]:
        """Return the positions that are true now that there is one more: with or without those that were doubted."""
        doubted = self._doubted[-1]
        if self._gait.can_grow(last, position) and self._is_nearer(last, doubted, position):
            return [position]
        if doubted.value < last.value:
            # Twice: two torn ones may well look as if they belonged together.
            run = [*self._doubted[-2:], position]
            is_confirmed = len(run) == 3 and all(itertools.starmap(self._gait.fits, itertools.pairwise(run)))
        else:
            is_confirmed = is_like_pace(last, doubted, position)
        return [*self._doubted, position] if is_confirmed else []

    def _is_nearer(self, one: Position, other: Position, after: Position) -> bool:
        """Say whether a position is what ``one`` led to expect rather than the ``other``."""
        return self._gait.misfit(one, after) <= self._gait.misfit(other, after)

    def _goes_on_outside(self, last: Position, position: Position) -> bool:
        """Say whether the loop around has gone on, and the counter can have started over."""
        is_further = last.outer is not None and position.outer is not None and last.outer < position.outer
        return is_further and self._gait.can_make(self._length.steps_over_end(last, position), last, position)

    # What is counted

    def _begin(self, position: Position) -> list[Count]:
        self._last = _Reached(position, position.value, 0)
        self._length.see(position.value)
        return [self._settle(self._last)]

    def _believe(self, position: Position) -> list[Count]:
        """Take in what was doubted, where it can be true."""
        assert self._last is not None
        last = self._last.position
        if position.value >= last.value:
            return self._advance(position)
        least = self._length.steps_over_end(last, position)
        return self._start_over(position) if self._gait.may_make(least, last, position) else []

    def _advance(self, position: Position) -> list[Count]:
        assert self._last is not None
        self._gait.learn(self._last.position, position)
        return self._reach(position, 0)

    def _start_over(self, position: Position) -> list[Count]:
        """Take in the first position after the counter has started over."""
        assert self._last is not None
        last, cycles = self._last.position, 1
        if last.outer is not None and position.outer is not None and last.outer < position.outer:
            cycles = min(position.outer - last.outer, self._length.most_ends(last, position, self._gait))
        self._length.see_end(last, position, cycles, self._gait)
        return self._reach(position, cycles)

    def _reach(self, position: Position, cycles: int) -> list[Count]:
        assert self._last is not None
        difference = self._last.difference + position.value - self._last.position.value
        self._last = _Reached(position, difference, self._last.cycles + cycles)
        self._length.see(position.value)
        self._held.append(self._last)
        return self.rest() if self._is_ripe(self._last.cycles) else []

    def _is_ripe(self, cycles: int) -> bool:
        """Say whether counts need not be held back: those of one cycle are exact, and beyond it they wait only once."""
        if cycles:
            self._has_waited = self._has_waited or self._length.is_within(HELD_SHARE) or cycles >= CYCLES_HELD
        return not cycles or self._has_waited

    def _settle(self, reached: _Reached) -> Count:
        """Return the count of a position; what was said is not taken back."""
        steps, error_steps = self._length.estimate()
        cycles = reached.cycles - self._settled.cycles
        self._settled_steps += reached.difference - self._settled.difference + cycles * steps
        self._settled_error += cycles * error_steps
        self._settled = reached
        error = self._settled_error + self._gait.rate_per_s * reached.position.error_ns / SECOND_NS
        return Count(reached.position.at_ns, self._settled_steps, round(error, 2))
