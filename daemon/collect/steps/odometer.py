"""Adds up the steps of a loop from what is seen of its counter, over all the times that it starts over. Pure.

How many steps lie between two sightings is plain while the counter grows. Where it has started over, the steps of a
whole cycle (an epoch) have to be known (``cyclelength``). Counts are held back until they are, for two cycles at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.cyclelength import CycleLength
from profd.daemon.collect.steps.gait import Gait, Position, has_changed, is_faster, is_told_outside
from profd.daemon.collect.steps.pauses import Pauses
from profd.daemon.collect.steps.restarts import Restarts
from profd.daemon.collect.steps.sightings import Sighting

CLOSE_SHARE = 0.02
HELD_SHARE = 0.05
CYCLES_HELD = 2
CYCLES_PROBED = 12
ROUGH_SHARE = 0.1
SOONEST_S = 0.25
PASSED_OVER_TO_JUDGE = 2


class Count(NamedTuple):
    """The steps made by ``at_ns``, give or take ``error_steps`` against the first count."""

    at_ns: int
    steps: int
    error_steps: float


class _Reached(NamedTuple):
    """What is certain of a position: the sum of all differences of the counter, and how often it started over.

    ``cycles`` are those that a counter around told, ``breaks`` those breaks on the way where none did.
    """

    position: Position
    difference: int
    cycles: int
    breaks: int


class _Step(NamedTuple):
    """A position that is believed, and how often the counter has started over on the way to it: None is not known."""

    position: Position
    cycles: int | None


class Odometer:
    """The steps of one loop; counts begin at the value that its counter was first seen with."""

    def __init__(self, stride: int = 1, rate_per_s: float = 0.0, pauses: Pauses | None = None) -> None:
        """Begin with the stride and the rate that the loop was found with; ``pauses`` are its own, as they are seen."""
        self._stride = stride
        self._gait = Gait(rate_per_s)
        self._length = CycleLength(self._gait, pauses)
        self._restarts = Restarts()
        self._before_last: Position | None = None
        self._last: _Reached | None = None
        self._doubted: list[Position] = []
        self._passed_over: list[tuple[Position, Position]] = []
        self._held: list[_Reached] = []
        self._has_waited = False
        self._told_steps: int | None = None
        self._shows_current = False

    @property
    def doubts(self) -> int:
        """How many sightings in a row have made no sense so far."""
        return len(self._doubted)

    def take(self, seen: Sighting, outer: int | None = None) -> list[Count]:
        """Take in a sighting; return the counts that are known now and were not before, in order of time.

        A value that is not what the ones before it led to expect counts once the next ones have confirmed it.
        """
        position = Position(seen.at_ns, seen.error_ns, seen.value // self._stride, outer, seen.is_current)
        self._shows_current = self._shows_current or seen.is_current
        if self._last is None:
            return self._begin(position)
        placed = self._within_its_cycle(self._last.position, position)
        if placed is None:
            self._length.see(position.value)
            return []
        position = placed
        steps = self._believed(self._last.position, position)
        if not steps:
            self._doubted.append(position)
            return []
        self._pass_over(self._last.position, steps)
        return [count for step in steps for count in self._go(step)]

    def learn_outer(self, values: Mapping[int, int]) -> None:
        """Learn what the counter around showed at earlier times: it was not known to be one."""
        if self._last is not None:
            position = _with_outer(self._last.position, values)
            if self._before_last is not None:
                before = _with_outer(self._before_last, values)
                position = self._within_its_cycle(before, position) or position
            self._last = self._last._replace(position=position)
            doubted = [_with_outer(one, values) for one in self._doubted]
            self._doubted = [self._within_its_cycle(position, one) or one for one in doubted]

    def rest(self) -> list[Count]:
        """Return the counts that are held back, such as they are."""
        held, self._held = self._held, []
        return [self._settle(reached) for reached in held]

    def cycle_s(self) -> float:
        """Return how long a cycle lasts, as far as one was seen: at least that long."""
        return self._length.period_s or self._restarts.period_s or self._least_s()

    def due_s(self) -> float | None:
        """Return in how many seconds, from the last sighting on, one more would say most about a cycle's length.

        As good is any whole number of cycles later. None where the length is known well, cannot be known better, or
        where the counter never started over.
        """
        rate_per_s = self._gait.rate_per_s
        if self._last is None or not rate_per_s or not self._length.has_ended:
            return None
        probed = self._cycles_of(self._last) > CYCLES_PROBED
        if self._length.is_within(ROUGH_SHARE if probed else CLOSE_SHARE):
            return None
        return max((self._length.halfway() - self._last.position.value) / rate_per_s, SOONEST_S)

    def _within_its_cycle(self, last: Position, position: Position) -> Position | None:
        """Return a position with the cycle that its value is of; None where that cannot be told.

        Until the first batch of an epoch is there, a counter shows the last one of the epoch before. Of that it is
        where it went on by no more since than it does in a pause.
        """
        is_plain = position.is_current or not self._length.may_be_last(position.value)
        if is_plain or not is_told_outside(last, position):
            return position
        ends = (position.outer or 0) - (last.outer or 0)
        steps = max(self._length.least, position.value + 1)
        made_before = position.value - last.value + (ends - 1) * steps
        if ends < 1 or made_before < 0:
            return position
        beyond = self._gait.expected(last, position) - made_before
        margin = self._gait.margin_steps(last, position)
        most = steps - margin
        if self._length.has_ended:
            pause = self._length.most_pause_steps
            most = ends * pause + (steps - (pause if self._length.may_be_last(last.value) else 0)) / 2
        if beyond < most:
            return position._replace(outer=(position.outer or 0) - 1)
        return position if self._length.has_ended or beyond <= steps + margin else None

    # What is believed

    def _believed(self, last: Position, position: Position) -> list[_Step]:
        """Return the steps that are certain with one more position: with or without those that were doubted."""
        step = self._step_between(last, position, is_alone=not self._doubted)
        if step is not None:
            return [step]
        return self._confirmed(last, position) if self._doubted else []

    def _step_between(self, last: Position, position: Position, *, is_alone: bool) -> _Step | None:
        """Return the way from one position to another where it is what was expected."""
        if self._goes_on_outside(last, position):
            return _Step(position, self._ends_outside(last, position))
        if self._is_break(last, position):
            return _Step(position, None)
        goes_on = self._gait.follows if is_alone else self._gait.fits
        if not is_told_outside(last, position):
            goes_on = self._gait.keeps_up
        return _Step(position, 0) if goes_on(last, position) else None

    def _goes_on_outside(self, last: Position, position: Position) -> bool:
        """Say whether the loop around has gone on, and the counter can have started over."""
        is_further = last.outer is not None and position.outer is not None and last.outer < position.outer
        return is_further and self._gait.can_make(self._length.steps_over_end(last, position), last, position)

    def _ends_outside(self, last: Position, position: Position) -> int:
        """Return how often the counter has started over by the counter around it: once where there is none."""
        if last.outer is None or position.outer is None or last.outer >= position.outer:
            return 1
        return min(position.outer - last.outer, self._length.most_ends(last, position))

    def _is_break(self, last: Position, position: Position) -> bool:
        """Say whether a counter has started over as its period, which is known, led to expect."""
        behind_s = self._gait.behind_s(last, position)
        return not is_told_outside(last, position) and bool(self._restarts.ends_within(behind_s))

    def _confirmed(self, last: Position, position: Position) -> list[_Step]:
        """Return the steps over positions that were doubted, now that one more says the same."""
        run = [*self._doubted[-2:], position]
        # Twice: two torn ones may well look as if they belonged together.
        if len(run) > 2 and self._starts_over(last, run):
            return [_Step(run[0], None), *(_Step(one, 0) for one in run[1:])]
        if self._went_on(last, run[-2], position):
            return [_Step(run[-2], None), _Step(position, 0)]
        if is_faster(self._gait, last, run[-2], position):
            return [_Step(run[-2], 0), _Step(position, 0)]
        if len(run) < 3 or is_told_outside(last, position):
            return []
        if has_changed(last, run):
            return [_Step(one, 0) for one in run]
        fits_period = self._restarts.explain([last, *run], self._gait, self._least_s())
        return [_Step(one, None) for one in run] if fits_period else []

    def _starts_over(self, last: Position, run: list[Position]) -> bool:
        """Say whether a counter fell, and went on from there."""
        goes_on = run[0].value < last.value and all(itertools.starmap(self._gait.fits, itertools.pairwise(run)))
        return goes_on and self._gait.may_make(self._length.steps_over_end(last, run[0]), last, run[0])

    def _went_on(self, last: Position, doubted: Position, position: Position) -> bool:
        """Say whether a loop paused before a position that was doubted, and went on from there."""
        return self._gait.follows(last, doubted) and self._gait.fits(doubted, position)

    def _pass_over(self, last: Position, steps: list[_Step]) -> None:
        """Doubt no longer. What was doubted for nothing was torn, or else cycles are shorter than was thought."""
        believed = [step.position for step in steps]
        self._passed_over += [(last, one) for one in self._doubted if one not in believed]
        self._doubted = []
        if len(self._passed_over) >= PASSED_OVER_TO_JUDGE:
            self._restarts.shorten(self._passed_over, self._gait, self._least_s())
            self._passed_over = []

    # What is counted

    def _begin(self, position: Position) -> list[Count]:
        self._last = _Reached(position, position.value, 0, 0)
        self._length.see(position.value)
        return [self._settle(self._last)]

    def _go(self, step: _Step) -> list[Count]:
        """Take in a position that is believed; return the counts that are ripe."""
        assert self._last is not None
        last, position = self._last.position, step.position
        if step.cycles is None:
            self._break(last, position)
        elif step.cycles:
            self._length.see_end(last, position, step.cycles)
        elif self._gait.stood(last, position):
            self._length.see_stop(position.value)
        elif not self._may_have_waited(position):
            self._gait.learn(last, position)
        difference = self._last.difference + position.value - last.value
        self._before_last = last
        self._last = _Reached(position, difference, self._last.cycles + (step.cycles or 0), self._restarts.seen)
        if step.cycles != 0 or position.value != last.value:
            self._length.see(position.value)
        self._held.append(self._last)
        return self.rest() if self._is_ripe(self._cycles_of(self._last)) else []

    def _may_have_waited(self, position: Position) -> bool:
        """Say whether a counter may have stood at a value for a while: it may be the last of its cycle."""
        if self._length.may_end_at(position.value):
            return True
        return self._shows_current and not position.is_current and self._length.may_be_last(position.value)

    def _break(self, last: Position, position: Position) -> None:
        """Take in that the counter started over, or paused, and no counter around it tells."""
        self._restarts.see(last, position, self._gait, self._least_s())
        self._length.forget_ends()
        for before, after, ends in self._restarts.over_ends():
            self._length.see_end(before, after, ends)

    def _least_s(self) -> float:
        """Return how long a cycle lasts at least."""
        return self._length.least / self._gait.rate_per_s if self._gait.rate_per_s else 0.0

    def _cycles_of(self, reached: _Reached) -> int:
        return reached.cycles + self._restarts.ends(reached.breaks)

    def _is_ripe(self, cycles: int) -> bool:
        """Say whether counts need not be held back: those of one cycle are exact, and beyond it they wait only once."""
        if cycles:
            self._has_waited = self._has_waited or self._length.is_within(HELD_SHARE) or cycles >= CYCLES_HELD
        return not cycles or self._has_waited

    def _settle(self, reached: _Reached) -> Count:
        """Return the count of a position, by all that is known now; what was said is never undercut."""
        steps, error_steps = self._length.estimate()
        cycles = self._cycles_of(reached)
        counted = reached.difference + cycles * steps
        self._told_steps = counted if self._told_steps is None else max(counted, self._told_steps)
        error = self._told_steps - counted + cycles * error_steps
        error += self._restarts.unexplained_steps(reached.breaks, steps, self._gait)
        error += self._gait.rate_per_s * reached.position.error_ns / SECOND_NS
        return Count(reached.position.at_ns, self._told_steps, round(error, 2))


def _with_outer(position: Position, values: Mapping[int, int]) -> Position:
    return position if position.outer is not None else position._replace(outer=values.get(position.at_ns))
