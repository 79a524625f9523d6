"""Adds up the rounds of a loop from readings of its counter, over all the times that it begins anew. Pure.

How many rounds lie between two readings is plain while the counter grows. Where it has begun anew, the rounds of the
whole loop (an epoch) have to be known: from the loop's ``range``, from a reading that saw the last round, or from two
that came closer together than two rounds. Until then the pace tells, and the error says how exactly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS

PACE_NS = 10 * SECOND_NS
# A counter that stood still for so many rounds was at its last one.
_STILL_ROUNDS = 4.0
_STILL_NS = SECOND_NS // 4
# Of two readings so close together the first one saw the last round.
CLOSE_ROUNDS = 0.5
# The pace is not known before so many readings.
_KNOWN = 5


class _Seen(NamedTuple):
    """A reading: the round of its loop, since when it has been that one, and how often the loop outside has begun."""

    at_ns: int
    round: int
    since_ns: int


class _Over(NamedTuple):
    """A loop that began anew: in round ``before`` it was seen last, in ``after`` first; so many ``added`` and wrong."""

    epochs: int
    before: int
    after: int
    added: int
    error: int


class Count:
    """The rounds of one loop. They begin with the number that the counter itself shows when it is first read."""

    def __init__(self, *, is_added: bool = False, is_late: bool = False) -> None:
        """Take a counter that ``is_added`` for one that goes on over epochs, until it was seen to begin anew.

        One that ``is_late`` stands, after the last round, at as many as there are.
        """
        self.is_added = is_added
        self._is_late = is_late
        self.rounds = 0
        self.error = 0
        """How many more or fewer there may have been since the first reading."""
        self.changed_ns = 0
        """When the present round was first seen."""
        self.has_moved = False
        self.length: int | None = None
        """The rounds of the whole loop, once they are known."""
        self._last: _Seen | None = None
        self._epoch: int | None = None
        self._longest = 0
        self._varies = False
        self._seen_length = 0
        self._ended_at: int | None = None
        """The round that was read last before the loop began anew."""
        self._is_told = False
        self._passed = 0
        """How many epochs were taken for as long as the others, without that their own end was seen."""
        self._unsure: list[_Over] = []
        self._recent: deque[tuple[int, int]] = deque()
        self._off_ns = 0

    def take(
        self,
        at_ns: int,
        number: int,
        epoch: Callable[[], int | None] = lambda: None,
        end: int | None = None,
        off: tuple[int, int] | None = None,
    ) -> None:
        """Take in that a counter showed the round ``number`` (from 0) at a time.

        ``epoch`` reads the counter of the loop outside; ``end`` is the number of rounds, where the loop tells it.
        ``off`` is from when to when the loop was seen to be left, since the last time.
        """
        if end is not None and end != self.length:
            self._learn(end)
            self._is_told = True
        last = self._last
        if last is None:
            self.rounds, self.changed_ns, self._epoch = number, at_ns, epoch()
        else:
            left_ns, back_ns = off or (at_ns, at_ns)
            self._off_ns += back_ns - left_ns
            made = self._made(last, left_ns - last.at_ns, at_ns - back_ns, number, epoch)
            self.rounds += made
            if made:
                self.changed_ns, self.has_moved = at_ns, True
        has_changed = last is None or number != last.round
        self._last = _Seen(at_ns, number, at_ns if has_changed or last is None else last.since_ns)
        longer = number + (not self._is_late) - self._longest
        self._longest += max(longer, 0)
        if longer > 0 and (self._varies or (self.length is not None and self._longest > self.length)):
            self._doubt(longer)
        self._recent.append((at_ns - self._off_ns, self.rounds))
        while len(self._recent) > 2 and self._recent[1][0] <= at_ns - self._off_ns - PACE_NS:
            self._recent.popleft()

    def rest(self, gap_s: float) -> tuple[int, int]:
        """Return the rounds after the last reading of a loop that was left so long after it, give or take how many."""
        if self._last is None:
            return 0, 0
        unread = self.per_s() * gap_s
        left = self.length - self._last.round if self.length is not None else -1
        if 0 <= left <= unread + 2:
            return left, 0
        # It was left at any time of these; the round that was read last is over.
        return round(unread / 2) + (not self._is_late), math.ceil(unread / 2)

    def complete(self, gap_s: float) -> None:
        """Take in that the loop was left so long after the last reading."""
        rounds, error = self.rest(gap_s)
        self.rounds += rounds
        self.error += error

    def per_s(self) -> float:
        """Return rounds a second of the last ten seconds in the loop."""
        if not self._recent:
            return 0.0
        (first_ns, first), (last_ns, last) = self._recent[0], self._recent[-1]
        return (last - first) * SECOND_NS / (last_ns - first_ns) if last_ns > first_ns else 0.0

    def is_near_end(self, ahead_s: float) -> bool:
        """Say whether the loop may begin anew within so many seconds, or is in what has to be its last round."""
        if self._last is None:
            return False
        if self.length is not None:
            return not self._is_told and self._last.round >= self.length - 1
        near = 2 + 2 * ahead_s * self.per_s()
        return self._ended_at is not None and abs(self._last.round - self._ended_at) <= near

    def is_short(self, gap_s: float) -> bool:
        """Say whether the loop may begin anew, and come as far again, within so many seconds."""
        return len(self._recent) < _KNOWN or self.per_s() * gap_s >= (self.length or self._longest) / 2

    @property
    def at_ns(self) -> int:
        """When the last reading was; 0 before the first."""
        return self._last.at_ns if self._last is not None else 0

    @property
    def is_started(self) -> bool:
        """Whether there was a reading."""
        return self._last is not None

    @property
    def is_uncertain(self) -> bool:
        """Whether the loop has begun anew while nobody knew its rounds."""
        return bool(self._unsure) and self.length is None

    def _made(self, last: _Seen, before_ns: int, after_ns: int, number: int, epoch: Callable[[], int | None]) -> int:
        """Return the rounds since the last reading: made so long after it, and before this one."""
        gap_s = (before_ns + after_ns) / SECOND_NS
        if number >= last.round and not self.is_short(gap_s):
            return number - last.round
        now = epoch()
        epochs = None if now is None or self._epoch is None else now - self._epoch
        self._epoch = now
        goes_on = self.is_added and self._ended_at is None
        expected = self.per_s() * gap_s
        if number >= last.round and (not epochs or goes_on):
            if epochs is None and self.length and expected > self.length:
                self.error += round(expected)
            return number - last.round
        self._ended_at = last.round
        unread = self.per_s() * before_ns / SECOND_NS
        is_seen = epochs in (None, 1) and self._has_seen_end(last, unread)
        if is_seen and not self._is_told:
            self._end_at(last.round + (not self._is_late))
        return self._over(last, number, max(epochs or 1, 1), expected, unread, is_sure=is_seen or self._is_told)

    def _has_seen_end(self, last: _Seen, unread: float) -> bool:
        """Say whether a reading was that of the last round: it stood still there, or less than a round may follow."""
        stood_ns = last.at_ns - last.since_ns
        is_still = stood_ns > _STILL_NS and stood_ns * self.per_s() > _STILL_ROUNDS * SECOND_NS
        return is_still or (unread <= CLOSE_ROUNDS and len(self._recent) >= _KNOWN and not self._is_late)

    def _end_at(self, length: int) -> None:
        """Take in that the loop was seen to end after so many rounds."""
        # Two epochs that were alike after all: what was in doubt was one reading.
        if self._varies and length == self._seen_length:
            self._varies, self._longest, self._passed = False, length, 0
        self._seen_length = length
        self._learn(length)

    def _over(self, last: _Seen, number: int, epochs: int, expected: float, unread: float, *, is_sure: bool) -> int:
        """Return the rounds since the last reading where the loop has begun anew; ``unread`` ones may have ended it."""
        if self.length is not None:
            made = epochs * self.length - last.round + number
            if is_sure or len(self._recent) < _KNOWN or made <= 1.5 * (expected + 1):
                self._passed += 0 if is_sure else epochs
                return made
            self._doubt(round(made - expected))
        least = epochs * self._longest - last.round + number if epochs > 1 or not self._varies else 1 + number
        # What was made since it was back is known.
        made = max(least, round(expected) if unread >= expected else number + round(unread))
        error = max(made - least, 1 + math.ceil(min(expected, unread) / 2))
        self.error += error
        if not self._varies:
            self._unsure.append(_Over(epochs, last.round, number, made, error))
        return made

    def _learn(self, length: int) -> None:
        """Take in how many rounds the loop has, and mend what was counted without that."""
        if length < self._longest or length == self.length or self._varies:
            if self.length not in (None, length):
                self._doubt(abs(length - (self.length or 0)))
            return
        self.length = length
        for over in self._unsure:
            self.rounds += over.epochs * length - over.before + over.after - over.added
            self.error -= over.error
            self._passed += over.epochs if over.before + 1 < length else 0
        self._unsure.clear()

    def _doubt(self, apart: int) -> None:
        """Take in that the loop has not always as many rounds: those that were counted so may be wrong by so many."""
        self._varies = not self._is_told
        self.length, self._is_told = None, False
        self.error += apart * self._passed
