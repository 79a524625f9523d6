"""Adds up a loop's rounds from readings of its counter over all times it begins anew.

It is pure.

While the counter grows, the rounds between two readings are plain. Where it has begun anew, the
number of rounds of the whole loop (an epoch) is needed: from the loop's ``range``, from a reading
in the last round, or from two readings less than two rounds apart. Until then the count goes by the
loop's rate, and the error says how exact that is. Where epochs have different numbers of rounds, as
episodes do, it goes by the rate within them: such a loop may also have begun anew, and come further
than before, between two readings.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS

# Of two readings so close together the first one saw the last round.
CLOSE_ROUNDS = 0.5
# The rate is not known before this many readings.
_KNOWN = 5

# So many epochs that surely ended before the longest one show that epochs have different numbers of
# rounds. A pause may look like one of them.
_SHORT_ENDS = 3
# So many in a row that were read last in the same round, the furthest of all, show that it was the
# last one.
_SAME_ENDS = 3
# The rate within epochs is that of so many readings.
_MOST_WITHIN = 60

Off = tuple[int, int] | None


class _Unsure(NamedTuple):
    """A time that the loop began anew.

    ``uncounted`` is the round after it, less those counted meanwhile.

    ``error`` is how many of these may be wrong. ``by_pace`` is how many more there were by the
    loop's rate alone, and ``pace_error`` how many of those may be wrong.
    """

    epochs: int
    last: int
    uncounted: int
    error: int
    by_pace: int
    pace_error: int


class Count:
    """The rounds of one loop.

    They begin with the number that the counter itself shows when it is first read.

    Of a loop that another counter has counted so far (``goes_on``) they begin with none. A counter
    that ``is_added`` goes on over epochs, until it is seen to begin anew. One that ``is_late``
    stands at the number of rounds after the last of them. A loop that ``breaks`` may end before its
    last round. Epochs may come in groups of ``early`` at most, as the loop of the epochs may end
    early (0: it does not).
    """

    def __init__(
        self,
        *,
        is_added: bool = False,
        is_late: bool = False,
        goes_on: bool = False,
        breaks: bool = False,
        early: int = 0,
    ) -> None:
        self.is_added, self._is_late, self._goes_on, self._breaks = (
            is_added,
            is_late,
            goes_on,
            breaks,
        )
        self._early = early
        self.rounds = 0
        self.error = 0
        """How many more or fewer there may have been since the first reading."""
        self.round: int | None = None
        """The last reading; None before the first."""
        self.at_ns = self.changed_ns = 0
        """When it was read, and when the present round was first seen."""
        self.has_moved = False
        self.length: int | None = None
        """The rounds of the whole loop, once they are known."""
        self._is_length_read = False
        self.varies = False
        """Whether epochs have different numbers of rounds."""
        self._epoch: int | None = None
        self._epoch_ns = 0
        """When the loop was last read in this epoch.

        One of the next may have passed while the counter stood.
        """
        self._longest = self._seen_length = 0
        self._short_ends = 0
        """How many more epochs ended long before the longest one than did not."""
        self._ended_at: int | None = None
        """The round that was read last before the loop began anew."""
        self._assumed = 0
        """How many epochs were taken for as long as the others, though their end was unseen."""
        self.unsure: list[_Unsure] = []
        """Each time that the loop began anew before its rounds were known."""
        self._recent: deque[tuple[int, int]] = deque()
        self._within: deque[tuple[float, int]] = deque(maxlen=_MOST_WITHIN)
        """The seconds between two readings surely in the same epoch, and the rounds made."""
        self._same_ends = 0
        """How many epochs in a row were read last in the same round."""
        self._fastest = 0.0
        """The most rounds a second that surely passed from one reading to the next."""
        self._off_ns = 0

    def take(
        self,
        at_ns: int,
        number: int,
        epoch: int | None = None,
        end: int | None = None,
        off: Off = None,
    ) -> None:
        """Add a reading: the counter showed the round ``number`` (from 0).

        ``epoch`` is the counter of the loop outside; ``end`` is the number of rounds, where the
        loop has it. ``off`` is from when to when the loop was seen to be left, since the last time.
        """
        if end is not None and self.needs_end:
            self._learn(end)
            self._is_length_read = True
        if self.round is None:
            self.rounds, self.changed_ns, self._epoch = 0 if self._goes_on else number, at_ns, epoch
        else:
            left_ns, back_ns = off or (at_ns, at_ns)
            self._off_ns += back_ns - left_ns
            was_off = (
                left_ns < back_ns
            )  # seen to be left more than once: a single look may have missed it
            made = self._made(
                self.round, left_ns - self.at_ns, at_ns - back_ns, number, epoch, was_off=was_off
            )
            self.rounds += made
            if made:
                self.changed_ns, self.has_moved = at_ns, True
        self.round, self.at_ns = number, at_ns
        if epoch == self._epoch:
            self._epoch_ns = at_ns
        longer = max(number + (not self._is_late) - self._longest, 0)
        self._longest += longer
        if longer and (self.varies or (self.length is not None and self._longest > self.length)):
            self._forget_length(longer)
        self._recent.append((at_ns - self._off_ns, self.rounds))
        while len(self._recent) > 2 and self._recent[1][0] <= at_ns - self._off_ns - 10 * SECOND_NS:
            self._recent.popleft()

    @property
    def needs_end(self) -> bool:
        """Whether the number of rounds of a ``range`` would say how long epochs are.

        Not of those left before it.
        """
        return self.length is None and not self.varies and not (self._breaks and self.unsure)

    def forget_epoch(self) -> None:
        """Compare the next number of the loops outside with none before it."""
        self._epoch = None

    def rest(self, gap_s: float) -> tuple[int, int]:
        """Return the rounds of a left loop after its last reading, and their error.

        The loop was left within ``gap_s`` seconds of that reading.
        """
        if self.round is None:
            return 0, 0
        unread = self.per_s() * gap_s
        left = self.length - self.round if self.length is not None else -1
        if 0 <= left <= unread + 2:
            return left, 0
        # It was left at any time of these; the round that was read last is over.
        return round(unread / 2) + (not self._is_late), math.ceil(unread / 2)

    def per_s(self) -> float:
        """Return rounds a second of the last ten seconds in the loop."""
        if not self._recent:
            return 0.0
        (first_ns, first), (last_ns, last) = self._recent[0], self._recent[-1]
        return (last - first) * SECOND_NS / (last_ns - first_ns) if last_ns > first_ns else 0.0

    def pace_within(self) -> float:
        """Return the rounds a second within an epoch."""
        took_s, made = (
            sum(gap_s for gap_s, _ in self._within),
            sum(rounds for _, rounds in self._within),
        )
        return made / took_s if made >= _KNOWN else self.per_s()

    def is_near_end(self, ahead_s: float) -> bool:
        """Say whether the loop may begin anew in some seconds or must be in its last round."""
        if self.round is None:
            return False
        if self.length is not None:
            return not self._is_length_read and self.round >= self.length - 1
        return (
            self._ended_at is not None
            and abs(self.round - self._ended_at) <= 2 + 2 * ahead_s * self.per_s()
        )

    def is_far_from_end(self, ahead_s: float) -> bool:
        """Say whether the loop goes on for longer than some seconds for all that is known."""
        if self.round is None or len(self._recent) < _KNOWN:
            return False
        if self.length is None:
            return self.is_added and self._ended_at is None
        if self._breaks and (self._ended_at is not None or self.round < 4 * self.per_s() * ahead_s):
            return False  # it may be left soon, unless it was not for long
        return self.round + self.per_s() * ahead_s < self.length

    def _made(
        self,
        last: int,
        before_ns: int,
        after_ns: int,
        number: int,
        now: int | None,
        *,
        was_off: bool = False,
    ) -> int:
        """Return the rounds since the last reading: made so long after it, and before this one."""
        gap_s, length = (before_ns + after_ns) / SECOND_NS, self.length or self._longest
        expected, known = self.per_s() * gap_s, len(self._recent) >= _KNOWN
        if now is not None and now != self._epoch and number + 1 == self.length:
            # The number of the next epoch is there before its first round: until then the counter
            # stands at its end.
            now -= number - last + length / 2 > expected
        epochs = None if now is None or self._epoch is None else now - self._epoch
        fastest = max(
            expected,
            self._fastest * ((self.at_ns - self._epoch_ns) / SECOND_NS * bool(epochs) + gap_s),
        )
        # A function that was left and called again has begun anew, though a generator goes on: the
        # pace shows which.
        since = self.per_s() * after_ns / SECOND_NS
        is_anew = (
            was_off
            and known
            and not self.is_added
            and abs(number - since) < abs(number - last - expected)
        )
        if self.varies:
            return self._made_of_unlike(last, before_ns, after_ns, number, now, is_anew=is_anew)
        # Where the loop is short it may have begun anew, and come as far again.
        is_short = not known or expected >= length / 2
        is_next = epochs and self.length and epochs * length - last + number <= 1.5 * (fastest + 1)
        if number >= last and not (is_short or is_next or is_anew):
            self._within.append((gap_s, number - last))
            self._fastest = max(self._fastest, (number - last - 1) / gap_s if gap_s else 0.0)
            return number - last
        if now is not None and self._epoch is not None and self._early:
            groups = now // self._early - self._epoch // self._early
            ended = self._early - 1 - self._epoch % self._early
            self.error += length * (ended + (groups - 1) * (self._early - 1)) * (groups > 0)
        self._epoch, is_numbered = now, epochs is not None and epochs >= 0

        def unseen(made: int) -> int:
            """Return the rounds of epochs that may also have passed, if their number is not known.

            It is not, either, where the loops around have begun anew themselves.
            """
            return (
                0
                if is_numbered or not known
                else length * max(int((1.5 * fastest - made) / length), 0)
            )

        if (
            number >= last
            and not is_anew
            and (not epochs or (self.is_added and self._ended_at is None))
        ):
            unmade = round(expected) - (number - last)
            if epochs is None and known and self._ended_at is not None and unmade > length / 2:
                self.error += max(unmade, length)  # it may have begun anew, and come further
            elif self.length:
                self.error += unseen(number - last)
            return number - last
        unread = self.per_s() * before_ns / SECOND_NS
        is_seen = epochs in (None, 1) and self._sees_end(
            last, unread, 1.5 * self._fastest * before_ns / SECOND_NS
        )
        epochs = max(epochs or 1, 1)
        if self.length is not None:
            made = epochs * self.length - last + number
            is_sure = is_seen or (self._is_length_read and not self._breaks)
            is_new = not known and not self._breaks
            if is_sure or is_new or made <= 1.5 * (fastest + 1):
                self._assumed += 0 if is_sure else epochs
                self.error += unseen(made)
                return made
            self._forget_length(round(made - expected))
        # What was made since it was back is known.
        by_pace = max(
            epochs + number, round(expected) if unread >= expected else number + round(unread)
        )
        missed, missed_s = (
            epochs * self._longest - last,
            (before_ns + after_ns * (epochs > 1)) / SECOND_NS,
        )
        if known:
            is_short_end = missed > 3 + 2 * self.pace_within() * missed_s
            self._short_ends = max(self._short_ends + (1 if is_short_end else -1), 0)
            # Faster than it ever was it hardly went on to the end of an epoch as long as the
            # longest.
            if (
                self._short_ends == _SHORT_ENDS
                or missed > 3 + 2 * max(self._fastest, self.pace_within()) * missed_s
            ):
                self._vary()
        if self.varies:
            return self._count_by_pace(epochs + number, by_pace, min(expected, unread))
        made = max(missed + number, by_pace)
        pace_error = max(by_pace - epochs - number, 1 + math.ceil(min(expected, unread) / 2))
        error = max(
            made - epochs - number, pace_error
        )  # epochs may be unlike, for all that is known
        self.error += error + unseen(made)
        self.unsure.append(_Unsure(epochs, last, number - made, error, by_pace - made, pace_error))
        return made

    def _made_of_unlike(
        self,
        last: int,
        before_ns: int,
        after_ns: int,
        number: int,
        now: int | None,
        *,
        is_anew: bool,
    ) -> int:
        """Return the same where epochs have different numbers of rounds."""
        epochs = None if now is None or self._epoch is None else now - self._epoch
        self._epoch = now
        gap_s, unread = (
            (before_ns + after_ns) / SECOND_NS,
            self.pace_within() * before_ns / SECOND_NS,
        )
        expected = self.pace_within() * gap_s
        if number >= last and not is_anew and not epochs:
            if epochs == 0 or self.is_added or number + 1 > 2 * expected:
                self._within.append((gap_s, number - last))
                return number - last
            return self._count_by_pace(number - last, expected, expected)
        self._sees_end(last, unread, 0.0)
        least = max(epochs or 1, 1) + number
        if not self.varies:  # they are alike after all
            return least + (self.length or 0) - last - 1
        by_pace = expected if unread >= expected else number + unread
        return self._count_by_pace(least, by_pace, min(expected, unread))

    def _count_by_pace(self, least: int, by_pace: float, doubtful: float) -> int:
        made = max(least, round(by_pace))
        self.error += max(made - least, 1 + math.ceil(doubtful / 2))
        return made

    def _sees_end(self, last: int, unread: float, most_unread: float) -> bool:
        """Say whether the last reading was in an epoch's last round, and learn its length.

        That is so where the counter stood still there, for 4 rounds or more, or less than a round
        may follow; unless as many may follow, at most, as the epoch still had.
        """
        self._same_ends = self._same_ends + 1 if last == self._ended_at else 1
        self._ended_at = last
        if self.length is not None and 1 < self.length - last <= 1 + most_unread:
            return False
        still_s = (self.at_ns - self.changed_ns) / SECOND_NS
        is_still = still_s > 0.25 and still_s * self.per_s() > 4
        is_close = unread <= CLOSE_ROUNDS and len(self._recent) >= _KNOWN and not self._is_late
        is_usual = self._same_ends >= _SAME_ENDS and last + 1 == self._longest
        if not is_still and not is_close and not is_usual:
            return False
        if self._breaks or not self._is_length_read:
            self._is_length_read, length = False, last + (not self._is_late)
            # Two epochs that were alike after all: what was in doubt was one reading.
            if self.varies and length == self._seen_length:
                self.varies, self._longest, self._assumed = False, length, 0
            self._seen_length = length
            self._learn(length)
        return True

    def _learn(self, length: int) -> None:
        """Set the rounds of the loop, and correct what was counted without that."""
        if length < self._longest or length == self.length or self.varies:
            if self.length not in (None, length):
                self._forget_length(abs(length - (self.length or 0)))
            return
        self.length = length
        for one in self.unsure:
            self.rounds += one.epochs * length - one.last + one.uncounted
            self.error -= one.error
            self._assumed += one.epochs if one.last + 1 < length else 0
        self.unsure.clear()

    def _forget_length(self, apart: int) -> None:
        """Take the loop for one whose rounds vary.

        Each epoch that was assumed may be wrong by ``apart``.
        """
        self.length, was_sure, self._is_length_read = (
            None,
            self._is_length_read and not self._breaks,
            False,
        )
        self.error += apart * self._assumed
        if not was_sure:
            self._vary()

    def _vary(self) -> None:
        """Count by pace from now on.

        Recount by pace what was counted as if all epochs were as long as the longest.
        """
        self.varies, self._short_ends = True, 0
        for one in self.unsure:
            self.rounds += one.by_pace
            self.error += one.pace_error - one.error
        self.unsure.clear()
