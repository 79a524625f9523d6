"""Adds up the steps of a loop from what is seen of its counter, over all the times that it starts over. Pure.

How many steps lie between two sightings is plain while the counter grows. Where it has started over, the steps of a
whole cycle (an epoch) have to be known: at least as many as the counter has reached, at most as many as the loop's rate
allows between the sightings around its end. The closer these are, the closer the bounds; counts are held back until
they are close, for a few cycles at most.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.sightings import Sighting

RATE_PAIRS = 7
RATE_MARGIN = 0.1
SURPRISE_FACTOR = 5.0
SURPRISE_STEPS = 10
CLOSE_SHARE = 0.02
HELD_SHARE = 0.05
CYCLES_HELD = 2
CYCLES_PROBED = 12
SOONEST_S = 0.25
HIGHEST_START = 1  # every cycle begins at 0 or 1, though it may never have been seen there


class Count(NamedTuple):
    """The steps made by ``at_ns``, give or take ``error_steps`` against the first count."""

    at_ns: int
    steps: int
    error_steps: float


class _Position(NamedTuple):
    """Where a loop was: ``value`` in steps, ``outer`` the counter around it, where there is one."""

    at_ns: int
    error_ns: int
    value: int
    outer: int | None


class _Reached(NamedTuple):
    """What is certain of a position: the sum of all differences of the counter, and how often it started over."""

    position: _Position
    difference: int
    cycles: int


class Odometer:
    """The steps of one loop; counts begin at the value that its counter was first seen with.

    ``doubts`` is how many sightings in a row made no sense.
    """

    def __init__(self, stride: int = 1, rate_per_s: float = 0.0) -> None:
        """Begin with the rate that the loop was found with."""
        self._stride = stride
        self._first_rate_per_s = rate_per_s
        self._last: _Reached | None = None
        self._doubted: _Position | None = None
        self.doubts = 0
        self._held: list[_Reached] = []
        self._has_waited = False
        self._rates: deque[float] = deque(maxlen=RATE_PAIRS)
        self._least = self._most = 0
        self._most_in_cycle: tuple[float, float] | None = None
        self._settled = _Reached(_Position(0, 0, 0, None), 0, 0)
        self._settled_steps = 0
        self._settled_error = 0.0

    @property
    def rate_per_s(self) -> float:
        """Steps a second while it steps, lately; 0 where not known."""
        return statistics.median(self._rates) if self._rates else self._first_rate_per_s

    def take(self, seen: Sighting, outer: int | None = None) -> list[Count]:
        """Take in a sighting; return the counts that are known now and were not before, in order of time.

        A value that is not what the ones before it led to expect counts once the next one has confirmed it.
        """
        position = _Position(seen.at_ns, seen.error_ns, seen.value // self._stride, outer)
        if self._last is None:
            return self._begin(position)
        last, doubted, doubts = self._last.position, self._doubted, self.doubts
        self._doubted, self.doubts = None, 0
        if doubted is not None and self._grew(doubted, position) and not self._fits_better(last, doubted, position):
            return [*self._start_over(doubted), *self._advance(position)]
        if self._grew(last, position):
            return self._advance(position)
        if last.outer is not None and outer is not None and last.outer < outer:
            return self._start_over(position)
        self._doubted, self.doubts = position, doubts + 1
        if doubted is not None and self._fell(last, doubted) and self._fell(doubted, position):
            return self._start_over(doubted)  # two cycles in a row that no second sighting fell into
        return []

    def rest(self) -> list[Count]:
        """Return the counts that are held back, such as they are."""
        held, self._held = self._held, []
        return [count for reached in held for count in self._emit(reached)]

    def cycle_s(self) -> float:
        """Return how long a cycle lasts, as far as one was seen: at least that long."""
        return self._cycle()[0] / self.rate_per_s if self.rate_per_s else 0.0

    def due_s(self) -> float | None:
        """Return in how many seconds, from the last sighting on, one more would say most about a cycle's length.

        None where that is known well, cannot be known better, or where the counter never started over.
        """
        if not self._has_cycles() or not self.rate_per_s or self._last is None or self._is_within(CLOSE_SHARE):
            return None
        if self._last.cycles > CYCLES_PROBED:
            return None
        steps, _ = self._cycle()
        halfway = (self._most + 1 + self._least + steps) / 2
        return max((halfway - self._last.position.value) / self.rate_per_s, SOONEST_S)

    def _begin(self, position: _Position) -> list[Count]:
        self._last = _Reached(position, position.value, 0)
        self._least = self._most = position.value
        return self._emit(self._last)

    def _grew(self, before: _Position, after: _Position) -> bool:
        """Say whether a loop can have got from one position to another by going on."""
        grown = after.value - before.value
        is_same_cycle = before.outer is None or after.outer is None or before.outer == after.outer
        return is_same_cycle and grown >= 0 and (self._can_make(grown, before, after) or not self._rates)

    def _fell(self, before: _Position, after: _Position) -> bool:
        """Say whether a loop can have got from one position to another by starting over."""
        least = self._most + 1 - before.value + after.value
        return after.value < before.value and self._can_make(least, before, after)

    def _can_make(self, steps: int, before: _Position, after: _Position) -> bool:
        """Say whether a loop can have made so many steps from one position to another, generously."""
        took_s = (after.at_ns - before.at_ns) / SECOND_NS
        return steps <= SURPRISE_FACTOR * self.rate_per_s * took_s + SURPRISE_STEPS

    def _fits_better(self, one: _Position, other: _Position, after: _Position) -> bool:
        """Say whether a position follows ``one`` by the loop's rate rather than the ``other``."""
        return self._grew(one, after) and self._misfit(one, after) <= self._misfit(other, after)

    def _misfit(self, before: _Position, after: _Position) -> float:
        return abs(after.value - before.value - self.rate_per_s * (after.at_ns - before.at_ns) / SECOND_NS)

    def _advance(self, position: _Position) -> list[Count]:
        assert self._last is not None
        before = self._last.position
        took_s = (position.at_ns - before.at_ns) / SECOND_NS
        if position.value > before.value or self.rate_per_s * took_s < 1:
            self._rates.append((position.value - before.value) / took_s)
        return self._reach(position, 0)

    def _start_over(self, position: _Position) -> list[Count]:
        """Take in the first position after the counter has started over, or, where it jumped ahead, after the jump."""
        assert self._last is not None
        before = self._last.position
        cycles = int(position.value < before.value)
        if before.outer is not None and position.outer is not None and before.outer < position.outer:
            cycles = min(position.outer - before.outer, self._most_cycles(before, position))
        if cycles:
            self._bound_cycle(before, position, cycles)
        return self._reach(position, cycles)

    def _most_cycles(self, before: _Position, after: _Position) -> int:
        """Return how often the counter can have started over by the loop's rate, generously."""
        made = self.rate_per_s * (after.at_ns - before.at_ns) / SECOND_NS
        return 1 + int(2 * made / (self._most - self._least + 1))

    def _bound_cycle(self, before: _Position, after: _Position, cycles: int) -> None:
        """Learn how many steps a cycle has at most; a pause at its end makes that more than there were."""
        made = self.rate_per_s * (after.at_ns - before.at_ns) / SECOND_NS
        margin = 1 + RATE_MARGIN * made + self.rate_per_s * (after.error_ns + before.error_ns) / SECOND_NS
        found = ((before.value - after.value + made) / cycles, margin / cycles)
        if self._most_in_cycle is None or sum(found) < sum(self._most_in_cycle):
            self._most_in_cycle = found

    def _reach(self, position: _Position, cycles: int) -> list[Count]:
        assert self._last is not None
        difference = self._last.difference + position.value - self._last.position.value
        self._last = _Reached(position, difference, self._last.cycles + cycles)
        self._least, self._most = min(self._least, position.value), max(self._most, position.value)
        self._held.append(self._last)
        # Counts of one cycle are exact against each other; only what lies beyond its end waits, and that once.
        if self._last.cycles:
            self._has_waited = self._has_waited or self._is_within(HELD_SHARE) or self._last.cycles >= CYCLES_HELD
        if self._last.cycles and not self._has_waited:
            return []
        return self.rest()

    def _emit(self, reached: _Reached) -> list[Count]:
        """Return the count of a position, and settle on it: what was said is not taken back."""
        steps, error_steps = self._cycle()
        cycles = reached.cycles - self._settled.cycles
        self._settled_steps += reached.difference - self._settled.difference + cycles * steps
        self._settled_error += cycles * error_steps
        self._settled = reached
        error = self._settled_error + self.rate_per_s * reached.position.error_ns / SECOND_NS
        return [Count(reached.position.at_ns, self._settled_steps, round(error, 2))]

    def _has_cycles(self) -> bool:
        return self._most_in_cycle is not None

    def _is_within(self, share: float) -> bool:
        """Say whether the length of a cycle is known as exactly as this share of it, or to a step."""
        steps, error_steps = self._cycle()
        return error_steps <= max(1.0, share * steps)

    def _cycle(self) -> tuple[int, float]:
        """Return how many steps a cycle has, and by how many that may be wrong."""
        least = self._most - min(self._least, HIGHEST_START) + 1
        if self._most_in_cycle is None:
            return least, 0.0
        wanted, margin = self._most_in_cycle
        steps = max(round(wanted), least)
        return steps, max(steps - least, wanted + margin - steps, 1.0)
