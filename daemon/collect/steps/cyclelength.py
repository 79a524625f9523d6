"""How many steps a cycle of a loop (an epoch) has, and how long it lasts, by what is seen of its counter. Pure.

At least as many as the counter has reached, at most as many as the loop's rate allows from one cycle to the next. The
closer these are, the closer the bounds; where the counter stands still at the highest value seen, or is met there again
and again, that is the last one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.gait import Gait, Position
from profd.daemon.collect.steps.pauses import NO_PAUSE, Pause, Pauses

HIGHEST_START = 0  # nearly every cycle begins at 0, though it may never have been seen there
STOPS_TO_BELIEVE = 2
# Several cycles were seen at the highest value of all, and many more of them than chance brings to any one value.
VISITS_TO_BELIEVE = 4
VISITS_OVER_CHANCE = 4.0
# That says something only where readings were to find it further by so many steps, and this share of a cycle: a rate
# that is told a little too high lets them come a little too early each time.
LEAST_FURTHER = 3
FURTHER_SHARE = 0.05
ENDS_KEPT = 12


class _End(NamedTuple):
    """Some cycles ended between two positions."""

    before: Position
    after: Position
    cycles: int


class Bound(NamedTuple):
    """What the rate allows a cycle to have at most, give or take ``margin`` steps."""

    wanted: float
    margin: float

    @property
    def weight(self) -> float:
        """How much it says beside others."""
        return self.margin**-2


class CycleLength:
    """The bounds of a cycle's length, closer with every cycle that is seen."""

    def __init__(self, gait: Gait, pauses: Pauses | None = None) -> None:
        """Judge by how the loop moves, and by what is known of its pauses from one cycle to the next."""
        self._gait = gait
        self._pauses = pauses or Pauses()
        self._lowest: int | None = None
        self._highest = 0
        self._stops: dict[int, int] = {}
        self._seen = 0
        self._visits = 0
        self._ends: deque[_End] = deque(maxlen=ENDS_KEPT)

    @property
    def has_ended(self) -> bool:
        """Say whether an end of a cycle was ever seen."""
        return bool(self._ends)

    @property
    def least(self) -> int:
        """How many steps a cycle has at least."""
        return 0 if self._lowest is None else self._highest - min(self._lowest, HIGHEST_START) + 1

    @property
    def period_s(self) -> float:
        """How long a cycle lasts, what comes between two of them included; 0 where none was seen to end."""
        cycles = sum(end.cycles for end in self._ends)
        return sum(self._gait.behind_s(end.before, end.after) for end in self._ends) / cycles if cycles else 0.0

    @property
    def most_pause_steps(self) -> float:
        """How many steps a loop might make in the time of the pause after a cycle, at most; 0 where none was seen."""
        return max(self.period_s * self._gait.rate_per_s - self.least, 0.0)

    def may_end_at(self, value: int) -> bool:
        """Say whether a value may be the last of a cycle, at which the counter stands until the next one begins."""
        return self.has_ended and self.may_be_last(value)

    def may_be_last(self, value: int) -> bool:
        """Say whether a value is as high as any that was seen: it may be the last of a cycle."""
        return value >= self._highest

    def see(self, value: int) -> None:
        """Learn that the counter has reached a value, at which it was not seen before in this cycle."""
        self._lowest = value if self._lowest is None else min(self._lowest, value)
        if value > self._highest:
            self._highest, self._visits = value, 1
        elif value == self._highest and self.halfway() >= value + max(LEAST_FURTHER, FURTHER_SHARE * self.least):
            self._visits += 1
        self._seen += 1

    def see_stop(self, value: int) -> None:
        """Learn that the counter stood still at a value for longer than a step takes."""
        self._stops = {stop: times for stop, times in self._stops.items() if stop >= value}
        if value >= self._highest:
            self._stops[value] = self._stops.get(value, 0) + 1

    def see_end(self, before: Position, after: Position, cycles: int) -> None:
        """Learn from the positions around some ends; a pause between them that nobody saw makes the bound too high."""
        self._ends.append(_End(before, after, cycles))

    def forget_ends(self) -> None:
        """Forget all ends: they are judged anew."""
        self._ends.clear()

    def estimate(self) -> tuple[int, float]:
        """Return how many steps a cycle has, and by how many that may be wrong."""
        least_error = 1.0 if (self._lowest or 0) > HIGHEST_START else 0.0
        if not self._ends or self._ends_at_highest():
            return self.least, least_error
        wanted, margin = self._at_most()
        steps = max(round(wanted), self.least)
        most = steps + margin
        return steps, max(steps - self.least, most - steps, 1.0)

    def is_within(self, share: float) -> bool:
        """Say whether the length is known as exactly as this share of it, or to a step."""
        steps, error_steps = self.estimate()
        return error_steps <= max(1.0, share * steps)

    def halfway(self) -> float:
        """Return the value of the counter by which a sighting would tell most: half-way between the bounds."""
        wanted = max(self._at_most()[0] if self._ends else 0.0, self.least)
        return (self._highest + 1 + min(self._lowest or HIGHEST_START, HIGHEST_START) + wanted) / 2

    def steps_over_end(self, before: Position, after: Position) -> int:
        """Return how many steps at least lie between two positions with an end between them."""
        return self._highest + 1 - before.value + after.value

    def most_ends(self, before: Position, after: Position) -> int:
        """Return how often a cycle can have ended between two positions, generously."""
        return 1 + int(2 * self._gait.expected(before, after) / max(self.least, 1))

    def _ends_at_highest(self) -> bool:
        """Say whether the highest value seen is the last of a cycle: the counter stands there until the next begins."""
        by_chance = self._seen / max(self.least, 1)
        is_met_often = self._visits >= max(VISITS_TO_BELIEVE, VISITS_OVER_CHANCE * by_chance)
        return is_met_often or self._stops.get(self._highest, 0) >= STOPS_TO_BELIEVE

    def _at_most(self) -> Bound:
        """Return the closest upper bound of the length."""
        return closest_bound(list(self._bounds()), self.least)

    def _bounds(self) -> Iterator[Bound]:
        """Yield what each end tells; a cycle that is not sampled yet is taken to pause as the others do."""
        pauses = [self._pauses.between(end.before.at_ns, end.after.at_ns) for end in self._ends]
        told = [(pause.seconds, end.cycles) for pause, end in zip(pauses, self._ends, strict=True) if pause]
        mean_s = sum(seconds for seconds, _ in told) / sum(cycles for _, cycles in told) if told else 0.0
        for pause, end in zip(pauses, self._ends, strict=True):
            bound = self._bound(end, pause or Pause(mean_s * end.cycles, mean_s * end.cycles))
            # Lines of a source that is not the one that runs would show pauses where there are none.
            yield bound if sum(bound) >= self.least else self._bound(end, NO_PAUSE)

    def _bound(self, end: _End, pause: Pause) -> Bound:
        """Return what the rate allows from one cycle to the next, by the rate before the end and after it."""
        before, after, cycles = end
        rate_per_s = self._gait.rate_around(before.at_ns, after.at_ns)
        took_s = (after.at_ns - before.at_ns) / SECOND_NS
        made = before.value - after.value + rate_per_s * (took_s - pause.seconds)
        margin = 1 + self._gait.margin_share * rate_per_s * took_s
        margin += rate_per_s * ((after.error_ns + before.error_ns) / SECOND_NS + pause.error_s)
        return Bound(made / cycles, margin / cycles)


def closest_bound(bounds: Sequence[Bound], least: int) -> Bound:
    """Return what several bounds of one length say together, which is ``least`` at least.

    It is the mean of all that may be the same, the exact ones before the others: the lowest alone is that of the cycle
    in which the loop went slowest, and higher ones have a pause in them. One below the least says nothing.
    """
    possible = [bound for bound in bounds if sum(bound) >= least] or bounds
    possible = [bound._replace(wanted=max(bound.wanted, least)) for bound in possible]
    most = min(map(sum, possible))
    alike = [bound for bound in possible if bound.wanted - bound.margin <= most]
    whole = sum(bound.weight for bound in alike)
    mean = sum(bound.wanted * bound.weight for bound in alike) / whole
    spread = math.sqrt(sum((bound.wanted - mean) ** 2 * bound.weight for bound in alike) / whole)
    return Bound(mean, max(min(bound.margin for bound in alike), spread))
