"""Adds up a loop's rounds from readings of its counter, which begins anew with each epoch.

It is pure.

While the counter grows, the rounds between two readings are their difference. If it has begun anew,
the number of rounds of the whole loop (an epoch) is needed. What is known of it is one of three:

* nothing yet: the count goes by the loop's rate, and the error says how exact that is;
* all epochs have the same ``length``, once that was learned (``_learn``): from the loop's
  ``range``, from a reading in the last round, or from two readings less than two rounds apart. It
  is forgotten if readings do not fit it (``_forget_length``);
* epochs have different numbers of rounds, as episodes do (``varies``), once several ended early
  (``_vary``): the count goes by the rate within them. Such a loop may also have begun anew, and
  come further than before, between two readings. Two that are alike after all end that.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS

# If two readings are this close together, the first one saw the last round.
CLOSE_ROUNDS = 0.5
# The rate is known from this many readings on, and from this many rounds within epochs.
_KNOWN = 5


class _Gap(NamedTuple):
    """The time between two readings, the rounds ``last`` and ``number``."""

    last: int
    number: int
    before_ns: int
    """How long the loop went on after the last reading, until it was seen to be left, if it was."""
    after_ns: int
    """How long it has gone on since it was back."""
    off_ns: int
    epoch: int | None
    """The number of the loops outside at the end."""
    epochs: int | None
    """How many epochs began, if that number was read at both ends."""
    length: int
    """The rounds of an epoch, as far as they were known."""
    pace: float
    """The loop's rounds a second until then."""
    fastest: float
    """How many rounds there were at most, at the fastest pace ever seen."""
    is_anew: bool
    """Whether the loop's function was called again, though the counter shows no less."""

    @property
    def seconds(self) -> float:
        return (self.before_ns + self.after_ns) / SECOND_NS

    @property
    def expected(self) -> float:
        """The rounds by the loop's pace."""
        return self.pace * self.seconds

    @property
    def unread(self) -> float:
        """Those of them before the loop was left."""
        return self.pace * self.before_ns / SECOND_NS

    @property
    def grown(self) -> int:
        return self.number - self.last

    @property
    def is_numbered(self) -> bool:
        """Whether the epochs are known: not if the loops outside have begun anew themselves."""
        return self.epochs is not None and self.epochs >= 0


class _Unsure(NamedTuple):
    """A time at which the loop began anew.

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

    They begin with the number that the counter itself shows when it is first read, or with 0 if
    another counter has counted the loop so far (``goes_on``). A counter that ``is_added`` goes on
    over epochs, until it is seen to begin anew. One that ``is_late`` stands at the number of rounds
    after the last of them. A loop that ``breaks`` may end before its last round. Epochs come in
    groups of at most ``early`` if the loop of the epochs may end early (0: it does not).
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
        self.is_added = is_added
        self._is_late = is_late
        self._goes_on = goes_on
        self._breaks = breaks
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
        """When the loop was last read in this epoch: others may have passed while it stood."""
        self._longest = self._seen_length = 0
        self._short_ends = 0
        """How many more epochs ended long before the longest one than did not."""
        self._ended_at: int | None = None
        """The round that was read last before the loop began anew."""
        self._assumed = 0
        """How many epochs were assumed to be as long as the others, though their end was unseen."""
        self.unsure: list[_Unsure] = []
        """The times at which the loop began anew before its length was known."""
        self._recent: deque[tuple[int, int]] = deque()
        self._within: deque[tuple[float, int]] = deque(maxlen=60)
        """The seconds between two readings surely in the same epoch, and the rounds made."""
        self._same_ends = 0
        """How many epochs in a row were read last in the same round."""
        self._fastest = 0.0
        """The most rounds a second that surely passed from one reading to the next."""
        self.left_ns: int | None = None
        """When the loop was first seen to be left since the last reading; None if it was not."""
        self._still_left_ns = 0
        """When it was last seen to be left."""
        self._off_ns = 0
        """How long the loop was left in all."""

    def leave(self, at_ns: int) -> None:
        """Note that the loop is left at a time: what counts it is not there."""
        self.left_ns = at_ns if self.left_ns is None else self.left_ns
        self._still_left_ns = at_ns

    def take(
        self, at_ns: int, number: int, epoch: int | None = None, end: int | None = None
    ) -> None:
        """Add a reading: the counter showed the round ``number`` (from 0).

        ``epoch`` is the counter of the loop outside; ``end`` is the number of rounds, if the loop
        has it.
        """
        if end is not None and self.needs_end:
            self._learn(end)
            self._is_length_read = True
        if self.round is None:
            self.rounds, self.changed_ns, self._epoch = 0 if self._goes_on else number, at_ns, epoch
        else:
            gap = self._gap(self.round, at_ns, number, epoch)
            self._off_ns += gap.off_ns
            if made := self._made(gap):
                self.rounds += made
                self.changed_ns, self.has_moved = at_ns, True
        self.round, self.at_ns, self.left_ns = number, at_ns, None
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
        """Whether a ``range`` would say how long epochs are: not if they end before it."""
        return self.length is None and not self.varies and not (self._breaks and self.unsure)

    def forget_epoch(self) -> None:
        """Compare the next number of the loops outside with none of those before."""
        self._epoch = None

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
        return round(unread / 2) + (not self._is_late), math.ceil(unread / 2)

    def per_s(self) -> float:
        """Return rounds a second of the last ten seconds in the loop."""
        if not self._recent:
            return 0.0
        (first_ns, first), (last_ns, last) = self._recent[0], self._recent[-1]
        return (last - first) * SECOND_NS / (last_ns - first_ns) if last_ns > first_ns else 0.0

    def pace_within(self) -> float:
        """Return the rounds a second within an epoch."""
        made = sum(rounds for _, rounds in self._within)
        return made / sum(gap_s for gap_s, _ in self._within) if made >= _KNOWN else self.per_s()

    @property
    def _knows_pace(self) -> bool:
        return len(self._recent) >= _KNOWN

    def is_near_end(self, ahead_s: float) -> bool:
        """Say whether the loop may begin anew within some seconds, or must be in its last round."""
        if self.round is None:
            return False
        if self.length is not None:
            return not self._is_length_read and self.round >= self.length - 1
        return (
            self._ended_at is not None
            and abs(self.round - self._ended_at) <= 2 + 2 * ahead_s * self.per_s()
        )

    def is_far_from_end(self, ahead_s: float) -> bool:
        """Say whether the loop goes on for longer than some seconds, as far as is known."""
        if self.round is None or not self._knows_pace:
            return False
        if self.length is None:
            return self.is_added and self._ended_at is None
        if self._breaks and (self._ended_at is not None or self.round < 4 * self.per_s() * ahead_s):
            return False  # it may be left soon, unless it was not for long
        return self.round + self.per_s() * ahead_s < self.length

    def _gap(self, last: int, at_ns: int, number: int, epoch: int | None) -> _Gap:
        left_ns, back_ns = at_ns, at_ns
        if self.left_ns is not None:
            left_ns, back_ns = self.left_ns, self._still_left_ns
        before_ns, after_ns, off_ns = left_ns - self.at_ns, at_ns - back_ns, back_ns - left_ns
        gap_s, length = (before_ns + after_ns) / SECOND_NS, self.length or self._longest
        pace = self.per_s()
        expected = pace * gap_s
        if epoch is not None and epoch != self._epoch and number + 1 == self.length:
            # The number of the next epoch is there before its first round: until then the counter
            # stands at its end.
            epoch -= number - last + length / 2 > expected
        epochs = None if epoch is None or self._epoch is None else epoch - self._epoch
        since_epoch_s = (self.at_ns - self._epoch_ns) / SECOND_NS if epochs else 0.0
        # A function that was left and called again has begun anew, though a generator goes on: the
        # pace shows which. A single look may have missed that it was left.
        may_be_anew = off_ns > 0 and self._knows_pace and not self.is_added
        is_anew = abs(number - pace * after_ns / SECOND_NS) < abs(number - last - expected)
        return _Gap(
            last,
            number,
            before_ns,
            after_ns,
            off_ns,
            epoch,
            epochs,
            length,
            self.pace_within() if self.varies else pace,
            fastest=max(expected, self._fastest * (since_epoch_s + gap_s)),
            is_anew=may_be_anew and is_anew,
        )

    def _made(self, gap: _Gap) -> int:
        """Return the rounds made between two readings."""
        has_grown = gap.number >= gap.last and not gap.is_anew
        if has_grown and not self._may_have_passed(gap):
            self._within.append((gap.seconds, gap.grown))
            if gap.seconds and not self.varies:
                self._fastest = max(self._fastest, (gap.grown - 1) / gap.seconds)
            return gap.grown
        self._doubt_early_ends(gap)
        self._epoch = gap.epoch
        if has_grown and (not gap.epochs or (self.is_added and self._ended_at is None)):
            return self._made_by_growth(gap)
        return self._made_anew(gap)

    def _may_have_passed(self, gap: _Gap) -> bool:
        """Say whether a counter that has grown may also have begun anew, and come as far again."""
        if self.varies:
            is_far = self.is_added or gap.number + 1 > 2 * gap.expected
            return bool(gap.epochs) or (gap.epochs is None and not is_far)
        is_short = not self._knows_pace or gap.expected >= gap.length / 2
        epochs, most = gap.epochs, 1.5 * (gap.fastest + 1)
        is_next = epochs and self.length and epochs * gap.length + gap.grown <= most
        return bool(is_short or is_next)

    def _doubt_early_ends(self, gap: _Gap) -> None:
        """Add the epochs to the error by which loops of epochs may have ended early."""
        if gap.epoch is None or self._epoch is None or not self._early or self.varies:
            return
        groups = gap.epoch // self._early - self._epoch // self._early
        if groups > 0:
            ended = self._early - 1 - self._epoch % self._early
            self.error += gap.length * (ended + (groups - 1) * (self._early - 1))

    def _unseen(self, gap: _Gap, made: int) -> int:
        """Return the rounds of epochs that may also have passed, if their number is not known."""
        if gap.is_numbered or not self._knows_pace:
            return 0
        return gap.length * max(int((1.5 * gap.fastest - made) / gap.length), 0)

    def _made_by_growth(self, gap: _Gap) -> int:
        """Return by how much the counter has grown; add what it may have missed to the error."""
        if self.varies:
            return self._count_by_pace(gap.grown, round(gap.expected), gap.expected)
        unmade = round(gap.expected) - gap.grown
        has_ended = self._knows_pace and self._ended_at is not None
        if gap.epochs is None and has_ended and unmade > gap.length / 2:
            self.error += max(unmade, gap.length)  # it may have begun anew, and come further
        elif self.length:
            self.error += self._unseen(gap, gap.grown)
        return gap.grown

    def _made_anew(self, gap: _Gap) -> int:
        """Return the rounds until the end of an epoch, and since, by its length if that fits."""
        fastest_unread = 1.5 * self._fastest * gap.before_ns / SECOND_NS
        is_one = gap.epochs in (None, 1)
        is_seen = (is_one or self.varies) and self._sees_end(gap.last, gap.unread, fastest_unread)
        epochs = max(gap.epochs or 1, 1)
        if self.length is not None:
            made = epochs * self.length - gap.last + gap.number
            is_sure = is_seen or (self._is_length_read and not self._breaks)
            is_new = not self._knows_pace and not self._breaks
            if is_sure or is_new or made <= 1.5 * (gap.fastest + 1):
                self._assumed += 0 if is_sure else epochs
                self.error += self._unseen(gap, made)
                return made
            self._forget_length(round(made - gap.expected))
        return self._made_by_pace(gap, epochs)

    def _made_by_pace(self, gap: _Gap, epochs: int) -> int:
        """Return the rounds until the end of epochs of unknown length, and since."""
        least = epochs + gap.number
        # The rounds since it was back are known.
        since = gap.number + round(gap.unread)
        by_pace = max(least, round(gap.expected) if gap.unread >= gap.expected else since)
        missed = epochs * self._longest - gap.last
        if self._knows_pace and not self.varies:
            missed_ns = gap.before_ns + gap.after_ns * (epochs > 1)
            self._judge_end(missed, missed_ns / SECOND_NS)
        doubtful = min(gap.expected, gap.unread)
        if self.varies:
            return self._count_by_pace(least, by_pace, doubtful)
        made = max(missed + gap.number, by_pace)
        pace_error = max(by_pace - least, 1 + math.ceil(doubtful / 2))
        error = max(made - least, pace_error)  # epochs may be unlike, for all that is known
        self.error += error + self._unseen(gap, made)
        self.unsure.append(
            _Unsure(epochs, gap.last, gap.number - made, error, by_pace - made, pace_error)
        )
        return made

    def _judge_end(self, missed: int, missed_s: float) -> None:
        """Count by pace if epochs have different lengths.

        ``missed`` rounds would have been made in ``missed_s`` if they were as long as the longest.
        Three that surely ended earlier show it: a pause may look like one of them. So does one of
        which the loop hardly made the rest, as it would be faster than it ever was.
        """
        is_short_end = missed > 3 + 2 * self.pace_within() * missed_s
        self._short_ends = max(self._short_ends + (1 if is_short_end else -1), 0)
        most = 3 + 2 * max(self._fastest, self.pace_within()) * missed_s
        if self._short_ends == 3 or missed > most:
            self._vary()

    def _count_by_pace(self, least: int, by_pace: int, doubtful: float) -> int:
        made = max(least, by_pace)
        self.error += max(made - least, 1 + math.ceil(doubtful / 2))
        return made

    def _sees_end(self, last: int, unread: float, most_unread: float) -> bool:
        """Say whether the last reading was in an epoch's last round; if so learn its length.

        That is so if the counter stood still there for more than 4 rounds, if less than a round may
        follow, or if three epochs in a row were read last in this round, the furthest of all. It is
        not if the epoch had no more rounds left than may follow at most.
        """
        self._same_ends = self._same_ends + 1 if last == self._ended_at else 1
        self._ended_at = last
        if self.length is not None and 1 < self.length - last <= 1 + most_unread:
            return False
        still_s = (self.at_ns - self.changed_ns) / SECOND_NS
        is_still = still_s > 0.25 and still_s * self.per_s() > 4
        is_close = unread <= CLOSE_ROUNDS and self._knows_pace and not self._is_late
        is_usual = self._same_ends >= 3 and last + 1 == self._longest
        if not is_still and not is_close and not is_usual:
            return False
        if self._breaks or not self._is_length_read:
            self._is_length_read, length = False, last + (not self._is_late)
            # Two epochs were alike after all: only one reading was in doubt.
            if self.varies and length == self._seen_length:
                self.varies, self._longest, self._assumed = False, length, 0
            self._seen_length = length
            self._learn(length)
        return True

    def _learn(self, length: int) -> None:
        """Set the rounds of the loop, and correct what was counted without knowing them."""
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
        """Assume that the rounds of epochs vary, unless their number was sure.

        Each epoch that was assumed may be wrong by ``apart``.
        """
        was_sure = self._is_length_read and not self._breaks
        self.length, self._is_length_read = None, False
        self.error += apart * self._assumed
        if not was_sure:
            self._vary()

    def _vary(self) -> None:
        """Count by pace from now on; recount the epochs assumed to be as long as the longest."""
        self.varies, self._short_ends = True, 0
        for one in self.unsure:
            self.rounds += one.by_pace
            self.error += one.pace_error - one.error
        self.unsure.clear()
