"""Adds up a loop's rounds from readings of its counter, which may begin anew with each epoch.

It is pure.

While the counter grows, the rounds between two readings are their difference. If it has begun anew,
the rest of the epoch before was not read, and whole epochs may have passed. Then the rounds lie
between two bounds: what the two readings show, and what the loop can have made in that time at its
pace (``_most``). The count adds up both bounds. The pace lies between them, and is what counts.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS

# A loop may go faster than its pace by this factor for some rounds.
_FASTER = 1.5
# The pace is known from this many rounds on, and this many readings, surely within epochs.
_KNOWN = 5


class _Made(NamedTuple):
    """The rounds between two readings: at least, by the loop's pace, and at most."""

    least: float
    likely: float
    most: float

    def plus(self, other: _Made) -> _Made:
        return _Made(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def error(self) -> int:
        return math.ceil(max(self.likely - self.least, self.most - self.likely))


class _Gap(NamedTuple):
    """The time between two readings, the rounds ``last`` and ``number``."""

    last: int
    number: int
    before_s: float
    """How long the loop went on after the last reading, until it was seen to be left, if it was."""
    after_s: float
    """How long it has gone on since it was back."""
    is_left: bool

    @property
    def seconds(self) -> float:
        return self.before_s + self.after_s

    @property
    def grown(self) -> int:
        return self.number - self.last


class Count:
    """The rounds of one loop.

    They begin with the number that the counter itself shows when it is first read. If another
    counter has counted the loop so far (``goes_on``), or if the loop cannot have made so many
    (``most_before``), they begin with 0, and ``most_before`` may be missed. A counter that
    ``is_added`` goes on over epochs, until it is seen to begin anew. One that ``is_late`` stands at
    the number of rounds after the last of them.
    """

    def __init__(
        self,
        *,
        is_added: bool = False,
        is_late: bool = False,
        most_before: float = math.inf,
        goes_on: bool = False,
    ) -> None:
        self.is_added = is_added
        self._last_round = 0 if is_late else 1
        self._most_before, self._goes_on = most_before, goes_on
        self.missed = 0.0
        """How many rounds may be missed besides."""
        self.round: int | None = None
        """The last reading; None before the first."""
        self.at_ns = self.changed_ns = 0
        """When it was read, and when the present round was first seen."""
        self.has_moved = False
        self._first = 0
        self._sum = _Made(0, 0, 0)
        """The rounds since the first reading."""
        self._shortest = math.inf
        """The rounds of the shortest epoch, at least; infinite while there was one alone."""
        self._recent: deque[tuple[int, float]] = deque()
        self._within: deque[tuple[float, int]] = deque(maxlen=200)
        """The seconds between two readings surely in the same epoch, and the rounds made."""
        self._pace = 0.0
        """The rounds a second within an epoch; 0 if too few were read."""
        self._fastest = 0.0
        """The most rounds a second that surely passed from one reading to the next."""
        self.left_ns: int | None = None
        """When the loop was first seen to be left since the last reading; None if it was not."""
        self._still_left_ns = 0
        """When it was last seen to be left."""
        self._off_ns = 0
        """How long the loop was left in all."""

    @property
    def rounds(self) -> int:
        return self._first + round(self._sum.likely)

    @property
    def error(self) -> int:
        """How many more or fewer there may have been since the first reading."""
        return self._sum.error + math.ceil(self.missed)

    @property
    def is_known(self) -> bool:
        """Whether the rounds have bounds: not if the loop begins anew before its pace is known."""
        return math.isinf(self._shortest) or self._pace > 0

    @property
    def is_steady(self) -> bool:
        """Whether the counter goes on over epochs at a pace that is known."""
        return self.is_added and self._pace > 0

    def leave(self, at_ns: int) -> None:
        """Note that the loop is left at a time: what counts it is not there."""
        self.left_ns = at_ns if self.left_ns is None else self.left_ns
        self._still_left_ns = at_ns

    def take(self, at_ns: int, number: int) -> None:
        """Add a reading: the counter showed the round ``number`` (from 0)."""
        if self.round is None:
            if self._goes_on or number > self._most_before:
                self.missed = self._most_before
            else:
                self._first = number
            self.changed_ns = at_ns
        else:
            before = self._sum.likely
            self._add(self._gap(self.round, at_ns, number))
            if number != self.round or self._sum.likely > before:
                self.changed_ns, self.has_moved = at_ns, True
        self.round, self.at_ns, self.left_ns = number, at_ns, None
        self._recent.append((at_ns - self._off_ns, self._sum.likely))
        while len(self._recent) > 2 and self._recent[1][0] <= at_ns - self._off_ns - 10 * SECOND_NS:
            self._recent.popleft()

    def rest(self, usual_s: float) -> tuple[int, int]:
        """Return the rounds of a left loop after its last reading, and their error.

        If it was not seen to be left, that was within ``usual_s`` seconds of that reading.
        """
        if self.round is None:
            return 0, 0
        gap_s = usual_s if self.left_ns is None else (self.left_ns - self.at_ns) / SECOND_NS
        # It was left at any time in the gap; the round that was read last is over.
        unread = self.per_s() * gap_s / 2
        return round(unread) + self._last_round, math.ceil(unread)

    def per_s(self) -> float:
        """Return rounds a second of the last ten seconds in the loop."""
        if not self._recent:
            return 0.0
        (first_ns, first), (last_ns, last) = self._recent[0], self._recent[-1]
        return (last - first) * SECOND_NS / (last_ns - first_ns) if last_ns > first_ns else 0.0

    def _gap(self, last: int, at_ns: int, number: int) -> _Gap:
        left_ns, back_ns = at_ns, at_ns
        if self.left_ns is not None:
            left_ns, back_ns = self.left_ns, self._still_left_ns
        self._off_ns += back_ns - left_ns
        return _Gap(
            last,
            number,
            (left_ns - self.at_ns) / SECOND_NS,
            (at_ns - back_ns) / SECOND_NS,
            self.left_ns is not None,
        )

    def _most(self, seconds: float) -> float:
        """Return the most rounds that can have begun in a time; infinite without a pace."""
        pace = max(self._pace, self._fastest)
        return _FASTER * pace * seconds + 1 if pace else math.inf

    def _add(self, gap: _Gap) -> None:
        """Add the rounds between two readings."""
        most = self._most(gap.seconds)
        goes_on = gap.grown >= 0
        if goes_on and not self._may_be_anew(gap, most):
            self._within.append((gap.seconds, gap.grown))
            made = sum(rounds for _, rounds in self._within)
            is_known = min(made, len(self._within)) >= _KNOWN
            self._pace = made / sum(gap_s for gap_s, _ in self._within) if is_known else 0.0
            if gap.seconds:
                self._fastest = max(self._fastest, (gap.grown - 1) / gap.seconds)
            self._sum = self._sum.plus(_Made(gap.grown, gap.grown, gap.grown))
            return
        is_first = not gap.is_left and math.isinf(self._shortest)
        is_of_no_epoch = not self._pace or (is_first and gap.last < 3 * most)
        if not goes_on:
            self._shortest = min(self._shortest, gap.last + self._last_round)
        if is_of_no_epoch:
            # Other epochs may have been between these readings: there is no bound yet.
            self._within.clear()
            self._pace = self._fastest = 0.0
            self._first, self._sum = self.rounds, _Made(0, 0, 0)
        else:
            self._sum = self._sum.plus(self._anew(gap, most, goes_on=goes_on))
        self.is_added = False

    def _may_be_anew(self, gap: _Gap, most: float) -> bool:
        """Say whether a counter that has grown may also have begun anew, and come as far again."""
        if self.is_added or not self._pace:
            return False
        if gap.is_left:
            return gap.number <= self._most(gap.after_s)
        return self._shortest + gap.grown <= most

    def _anew(self, gap: _Gap, most: float, *, goes_on: bool) -> _Made:
        """Return the rounds until the end of the last epoch, and since; ``goes_on``: or neither."""
        least = self._last_round + gap.number
        likely = self._pace * gap.seconds
        if gap.is_left:  # the rounds since it was back are known
            most = gap.number + self._most(gap.before_s)
            likely = gap.number + self._pace * gap.before_s
        most = max(least, most)
        least = min(least, gap.grown) if goes_on else least
        return _Made(least, min(max(likely, least), most), most)
