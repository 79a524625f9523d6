"""How often a counter has started over where no counter around it tells: by the one period that fits to all. Pure.

A break is where a counter fell, or where it grew by less than it should: it paused, or it started over and caught up.
All breaks are judged anew with each that is seen, so what is said of earlier ones may change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from profd.daemon.collect.steps.gait import Gait, Position

BREAKS_KEPT = 24
SLACK_SHARE = 0.15
MOST_CYCLES = 200
"""More cycles within one fall cannot be counted: a rate that is off by a thousandth makes a difference of the slack."""


class _Break(NamedTuple):
    """Between two sightings a counter has fallen ``behind`` what its rate led to expect, in seconds."""

    before: Position
    after: Position
    behind_s: float

    @property
    def fell(self) -> bool:
        """Say whether the counter shows that it has started over."""
        return self.after.value < self.before.value


class Restarts:
    """The breaks of one counter, and how many cycles have ended at each."""

    def __init__(self) -> None:
        self.period_s = 0.0
        self._breaks: list[_Break] = []
        self._ends: list[int] = []
        self._settled = 0
        self._settled_ends = 0
        self._settled_behind_s = 0.0

    @property
    def seen(self) -> int:
        """How many breaks there were."""
        return self._settled + len(self._breaks)

    def see(self, before: Position, after: Position, gait: Gait, least_s: float) -> None:
        """Take in a break; a cycle lasts ``least_s`` at least."""
        self._breaks.append(_break(before, after, gait))
        if len(self._breaks) > BREAKS_KEPT:
            self._settled, self._settled_ends = self._settled + 1, self._settled_ends + self._ends.pop(0)
            self._settled_behind_s += self._breaks.pop(0).behind_s
        self._judge(least_s)

    def explain(self, positions: Sequence[Position], gait: Gait, least_s: float) -> bool:
        """Say whether one period fits to the ways between some positions and to all breaks so far."""
        breaks = [*self._breaks, *(_break(*pair, gait) for pair in itertools.pairwise(positions))]
        period_s = _longest_period(breaks, least_s)
        return period_s > 0 and all(_whole(one.behind_s, period_s) is not None for one in breaks)

    def shorten(self, ways: Sequence[tuple[Position, Position]], gait: Gait, least_s: float) -> None:
        """Shorten the period where the ways to sightings that did not fit to it show a shorter one, all of them."""
        breaks = [*self._breaks, *(_break(*way, gait) for way in ways)]
        period_s = _longest_period(breaks, least_s)
        if self.period_s and period_s and all(_whole(one.behind_s, period_s) is not None for one in breaks):
            self._adopt(period_s)

    def ends(self, breaks: int) -> int:
        """Return how many cycles have ended at the first so many breaks."""
        return self._settled_ends + sum(self._ends[: max(breaks - self._settled, 0)])

    def unexplained_steps(self, breaks: int, steps: int, gait: Gait) -> float:
        """Return by how many steps the first so many breaks may be wrong, with so many steps a cycle.

        At those a counter fell behind by more, or by less, than the cycles that are said to have ended there: it
        paused, or else a cycle was overlooked.
        """
        seen = zip(self._breaks[: max(breaks - self._settled, 0)], self._ends, strict=False)
        settled = gait.rate_per_s * self._settled_behind_s - self._settled_ends * steps
        return abs(settled) + sum(_unexplained(one, ends, steps, gait) for one, ends in seen)

    def over_ends(self) -> list[tuple[Position, Position, int]]:
        """Return the breaks at which cycles have ended, with how many of them."""
        return [(one.before, one.after, ends) for one, ends in zip(self._breaks, self._ends, strict=True) if ends]

    def ends_within(self, behind_s: float) -> int | None:
        """Return how many cycles end while a counter falls so far behind; None where that is no whole number."""
        return _whole(behind_s, self.period_s) if self.period_s else None

    def _judge(self, least_s: float) -> None:
        """Find the longest period that the breaks fit to, and by it how many cycles ended at each."""
        if self.period_s and all(_whole(one.behind_s, self.period_s) is not None for one in self._breaks):
            self._adopt(_refined(self.period_s, self._breaks))
        else:
            self._adopt(_longest_period(self._breaks, least_s))

    def _adopt(self, period_s: float) -> None:
        self.period_s = period_s
        self._ends = [self._ends_at(one) for one in self._breaks]

    def _ends_at(self, one: _Break) -> int:
        if not self.period_s:
            return 0
        ends = _whole(one.behind_s, self.period_s)
        if ends is None:
            ends = max(round(one.behind_s / self.period_s), 0)
        return max(ends, int(one.fell))


def _unexplained(one: _Break, ends: int, steps: int, gait: Gait) -> float:
    """Return by how many steps a break may be wrong; a rate tells cycles no more exactly than to its margin."""
    margin = gait.margin_steps(one.before, one.after) if ends else 0.0
    return max(abs(gait.rate_per_s * one.behind_s - ends * steps) - margin, 0.0)


def _break(before: Position, after: Position, gait: Gait) -> _Break:
    return _Break(before, after, gait.behind_s(before, after))


def _longest_period(breaks: Sequence[_Break], least_s: float) -> float:
    """Return the period that the most breaks are whole numbers of, the longest of equals.

    0 where nothing fell, or where what fell cannot have been a whole cycle.
    """
    falls = [one.behind_s for one in breaks if one.fell and one.behind_s > 0]
    if not falls or least_s <= 0:
        return 0.0
    shortest_s = min(falls)
    # A torn read may show an address for a value: what falls from there would be billions of cycles.
    most = min(math.floor(shortest_s / (least_s * (1 - SLACK_SHARE))), MOST_CYCLES)
    periods = (_refined(shortest_s / cycles, breaks) for cycles in range(1, most + 1))
    fitting = ((sum(bool(_whole(one.behind_s, period_s)) for one in breaks), period_s) for period_s in periods)
    return max(fitting, default=(0, 0.0))[1]


def _refined(period_s: float, breaks: Sequence[_Break]) -> float:
    """Return a period made more exact by ever longer times."""
    took_s, cycles = 0.0, 0
    for behind_s in sorted(one.behind_s for one in breaks):
        ends = _whole(behind_s, period_s)
        if ends:
            took_s, cycles = took_s + behind_s, cycles + ends
            period_s = took_s / cycles
    return period_s


def _whole(took_s: float, period_s: float) -> int | None:
    """Return how many periods a time is; None where it is no whole number of them."""
    number = round(took_s / period_s)
    return number if number >= 0 and abs(took_s / period_s - number) <= SLACK_SHARE else None
