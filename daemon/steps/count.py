"""Adds up a loop's rounds from readings of its counter, which begins anew with each epoch.

It is pure.

While the counter grows, the rounds between two readings are their difference. If it has begun anew,
the rest of the epoch before was not read, and whole epochs may have passed. Then the rounds lie
between two bounds: what the two readings show, and what the loop can have made in that time at its
pace (``_most``). The count adds up both bounds. The pace lies between them, and is what counts.

Epochs that all have the same number of rounds have closer bounds: that number lies within the
bounds of each of them (``_low`` and ``_high``). It counts from five epochs on, until one of them
does not fit. The loop's ``range`` says it exactly.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS

# A loop may go faster than its pace by this factor for some rounds.
_FASTER = 1.5
# The pace is known from this many rounds on, and this many readings, surely within epochs. So many
# epochs that can have the same number of rounds show that they do.
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


_NONE = _Made(0, 0, 0)


class Count:
    """The rounds of one loop.

    They begin with the number that the counter itself shows when it is first read. If another
    counter has counted the loop so far (``goes_on``), or if the loop cannot have made so many
    (``most_before``), they begin with 0, and ``most_before`` may be missed. A counter that
    ``is_added`` goes on over epochs, until it is seen to begin anew. One that ``is_late`` stands at
    the number of rounds after the last of them. A loop that ``breaks`` may end before its last
    round.
    """

    def __init__(
        self,
        *,
        is_added: bool = False,
        is_late: bool = False,
        breaks: bool = False,
        most_before: float = math.inf,
        goes_on: bool = False,
    ) -> None:
        self.is_added = is_added
        self._last_round = 0 if is_late else 1
        self._breaks = breaks
        self._most_before, self._goes_on = most_before, goes_on
        self.missed = 0.0
        """How many rounds may be missed besides."""
        self.round: int | None = None
        """The last reading; None before the first."""
        self.at_ns = self.changed_ns = 0
        """When it was read, and when the present round was first seen."""
        self.has_moved = False
        self._first = self._first_number = 0
        self._sum = _NONE
        """The rounds since the first reading."""
        self._begun = _NONE
        """The epochs that began since, if all have the same number of rounds."""
        self._low, self._high, self._fitting = 0, math.inf, 0
        self._end: int | None = None
        """The rounds of this epoch, if its ``range`` says them."""
        self._shortest = math.inf
        self._recent: deque[tuple[int, float]] = deque()
        self._within: deque[tuple[float, int]] = deque(maxlen=200)
        """The seconds between two readings surely in the same epoch, and the rounds made."""
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
        return self._first + round(self._counted.likely)

    @property
    def error(self) -> int:
        """How many more or fewer there may have been since the first reading."""
        return self._counted.error + math.ceil(self.missed)

    @property
    def is_known(self) -> bool:
        """Whether the rounds have bounds: not if the loop begins anew before its pace is known."""
        return math.isinf(self._shortest) or self.pace() > 0

    @property
    def length(self) -> int | None:
        """The rounds of the present epoch, if they are known."""
        return self._low if self._end is None and self._are_alike else self._end

    @property
    def _counted(self) -> _Made:
        grown = (self.round or 0) - self._first_number
        if not self._are_alike or math.isinf(self._high):
            return self._sum
        # The highest of so many readings that come at any time of the last rounds.
        likely = self._low + (self._high - self._low) / (self._fitting + 1)
        least, begun, most = self._begun
        alike = _Made(grown + least * self._low, grown + begun * likely, grown + most * self._high)
        is_within = self._sum.least <= alike.likely <= self._sum.most
        return alike if is_within else self._sum

    @property
    def _are_alike(self) -> bool:
        """Whether so many epochs can have the same number of rounds, and hardly any other."""
        return self._fitting >= _KNOWN and 0 <= self._high - self._low <= self._low / 20

    def leave(self, at_ns: int) -> None:
        """Note that the loop is left at a time: what counts it is not there."""
        self.left_ns = at_ns if self.left_ns is None else self.left_ns
        self._still_left_ns = at_ns

    def take(self, at_ns: int, number: int, end: int | None = None) -> None:
        """Add a reading: the counter showed the round ``number`` (from 0).

        ``end`` is the number of rounds, if the loop has it.
        """
        if self.round is None:
            if self._goes_on or number > self._most_before:
                self.missed = self._most_before
            else:
                self._first = number
            self._first_number, self.changed_ns = number, at_ns
        else:
            before = self._sum.likely
            self._add(self._gap(self.round, at_ns, number))
            if number != self.round or self._sum.likely > before:
                self.changed_ns, self.has_moved = at_ns, True
        self.round, self.at_ns, self.left_ns = number, at_ns, None
        self._end = end if end is not None and not self._breaks else self._end
        self._low = max(self._low, number + self._last_round)
        self._recent.append((at_ns - self._off_ns, self._sum.likely))
        while len(self._recent) > 2 and self._recent[1][0] <= at_ns - self._off_ns - 10 * SECOND_NS:
            self._recent.popleft()

    @property
    def needs_end(self) -> bool:
        """Whether a ``range`` would say how long this epoch is: not if it may end before it."""
        return self._end is None and not self._breaks

    def rest(self, usual_s: float) -> tuple[int, int]:
        """Return the rounds of a left loop after its last reading, and their error.

        If it was not seen to be left, that was within ``usual_s`` seconds of that reading.
        """
        if self.round is None:
            return 0, 0
        gap_s = usual_s if self.left_ns is None else (self.left_ns - self.at_ns) / SECOND_NS
        unread = self.per_s() * gap_s
        left = self.length - self.round if self.length is not None else -1
        if 0 <= left <= unread + 2:
            return left, 0
        # It was left at any time in the gap; the round that was read last is over.
        return round(unread / 2) + self._last_round, math.ceil(unread / 2)

    def per_s(self) -> float:
        """Return rounds a second of the last ten seconds in the loop."""
        if not self._recent:
            return 0.0
        (first_ns, first), (last_ns, last) = self._recent[0], self._recent[-1]
        return (last - first) * SECOND_NS / (last_ns - first_ns) if last_ns > first_ns else 0.0

    def pace(self) -> float:
        """Return the rounds a second within an epoch; 0 if too few were read."""
        made = sum(rounds for _, rounds in self._within)
        is_known = min(made, len(self._within)) >= _KNOWN
        return made / sum(gap_s for gap_s, _ in self._within) if is_known else 0.0

    def is_far_from_end(self, ahead_s: float) -> bool:
        """Say whether the loop goes on for longer than some seconds, as far as is known."""
        if self.round is None or self.pace() == 0:
            return False
        if self.is_added:
            return True
        if self._breaks and self.round < 4 * self.per_s() * ahead_s:
            return False  # it may be left soon, unless it was not for long
        end = self.length or (math.inf if self._breaks and math.isinf(self._shortest) else 0)
        return self.round + self.per_s() * ahead_s < end

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
        pace = max(self.pace(), self._fastest)
        return _FASTER * pace * seconds + 1 if pace else math.inf

    def _add(self, gap: _Gap) -> None:
        """Add the rounds between two readings."""
        most = self._most(gap.seconds)
        goes_on = gap.grown >= 0
        if goes_on and not self._may_be_anew(gap, most):
            self._within.append((gap.seconds, gap.grown))
            if gap.seconds:
                self._fastest = max(self._fastest, (gap.grown - 1) / gap.seconds)
            self._sum = self._sum.plus(_Made(gap.grown, gap.grown, gap.grown))
            return
        if not self.pace() or (
            not gap.is_left and math.isinf(self._shortest) and gap.last < 3 * most
        ):
            # Other epochs may have been between these readings: there is no bound yet.
            self._within.clear()
            self._fastest = 0.0
            self._shortest = min(self._shortest, gap.last + self._last_round)
            self._first, self._first_number = self.rounds, gap.number
            self._sum = self._begun = _NONE
        else:
            self._sum = self._sum.plus(self._anew(gap, most, goes_on=goes_on))
        self.is_added, self._end = False, None

    def _may_be_anew(self, gap: _Gap, most: float) -> bool:
        """Say whether a counter that has grown may also have begun anew, and come as far again."""
        if self.is_added or not self.pace():
            return False
        if gap.is_left:
            return gap.number <= self._most(gap.after_s)
        return self._shortest + gap.grown <= most

    def _anew(self, gap: _Gap, most: float, *, goes_on: bool) -> _Made:
        """Return the rounds until the end of the last epoch, and since; ``goes_on``: or neither."""
        rest = self._last_round if self._end is None else self._end - gap.last
        least = rest + gap.number
        likely = self.pace() * gap.seconds
        if gap.is_left:  # the rounds since it was back are known
            most = gap.number + self._most(gap.before_s)
            likely = gap.number + self.pace() * gap.before_s
        is_one = least + self._shortest > most
        most = least if is_one and self._end is not None else max(least, most)
        if not goes_on:
            self._fit(gap, most, is_one=is_one)
        begun = self._epochs_in(gap, likely, most, goes_on=goes_on)
        self._begun = self._begun.plus(begun)
        least = min(least, gap.grown) if goes_on else least
        return _Made(least, min(max(likely, least), most), most)

    def _fit(self, gap: _Gap, most: float, *, is_one: bool) -> None:
        """Compare the rounds of the epoch that has ended with those of the others."""
        self._shortest = min(self._shortest, gap.last + self._last_round)
        low, high = gap.last + self._last_round, gap.last + most - gap.number
        low, high = (self._end, self._end) if self._end is not None else (low, high)
        self._low, self._high = max(self._low, low), min(self._high, math.floor(high))
        # If whole epochs pass between readings, those that are read are the longer ones.
        self._fitting = max(self._fitting + (1 if is_one else -1), 0)

    def _epochs_in(self, gap: _Gap, likely: float, most: float, *, goes_on: bool) -> _Made:
        """Return how many epochs began between two readings, if all have as many rounds."""
        least, length = 0 if goes_on else 1, max(self._low, 1)
        at_most = max((most - gap.grown) // length, least)
        by_pace = round((likely - gap.grown) / length)
        return _Made(least, min(max(by_pace, least), at_most), at_most)
