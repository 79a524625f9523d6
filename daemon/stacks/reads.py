"""Decide which times of a process were read; no other module does. Pure.

A stack lasts until the next sample shows another one, but only while there are samples: py-spy
leaves no trace of a sample that shows the same stack as before. Other sources tell whether it went
on sampling. Between two samples it sleeps for a mean interval or computes, which the kernel counts.
Its log has the failed reads. And the session looks at the process that is read. If any of these
speaks against a span, the span is *in doubt*: then only the samples in its trace prove that py-spy
read. A py-spy that was stopped makes up for all missed reads at once when it goes on, and does not
sleep meanwhile.

Time that was not read is a gap: no stack has time there. The looks also say why it was not read.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import GapFound, Identity
from profd.daemon.store.stepfunction import IntervalSet
from profd.daemon.timerange import TimeRange

ENOUGH = 20
"""This many mean sampling intervals without a sample are no chance.

This many reads show whether most of them succeed.
"""
_DEVIATIONS = 4.0
"""The number of samples in a span may fall short by this many standard deviations by chance.

It falls shorter in one span in 30,000.
"""

STOPPED, FROZEN, SUSPENDED = "stopped", "frozen", "suspended"
PROFD_STOPPED, UNREADABLE, EXEC = "profd stopped", "py-spy could not read", "exec"
_IN_WORDS = {
    STOPPED: "a signal or a debugger stopped the process",
    FROZEN: "its control group was frozen",
    SUSPENDED: "profd was stopped, and the process did not run meanwhile",
    PROFD_STOPPED: "profd did not run",
    EXEC: "the process became another program",
}
LATE_NS = SECOND_NS
"""The session looks several times a second: a longer pause means that it did not run."""
_MOST_WORDS = 32
_LATELY = 8
"""How many looks show how much a process usually runs: two seconds of them."""


class ProcessSnapshot(NamedTuple):
    """A process as the session saw it.

    ``pause`` is STOPPED, FROZEN or empty. ``image`` tells the programs of a process apart; 0 means
    that it is not known. ``runs`` grows only if the process runs: with its CPU time, and each time
    that its main thread gets a core.
    """

    at_ns: int
    pause: str = ""
    image: int = 0
    runs: int = 0


class Spell(NamedTuple):
    """The time from one look to a later one that found the same.

    ``state`` is the reason of a pause, or empty if the process ran.
    """

    from_ns: int
    to_ns: int
    state: str = ""
    image: int = 0


class Pulse(NamedTuple):
    """How often py-spy's sampler had slept by a moment, and the CPU time of that py-spy."""

    at_ns: int
    sleeps: int
    busy_ns: int


class Known(NamedTuple):
    """What is known of the times at which a recording has read.

    At ``seen_ns``, in order, it surely did; the other fields may speak against some of the rest. At
    the times in ``moved_ns`` the process had gone on to another stack than the one seen before, so
    it ran.
    """

    seen_ns: Sequence[int]
    moved_ns: Sequence[int] = ()
    failed_ns: Sequence[int] = ()
    pulses: Sequence[Pulse] = ()
    spells: Sequence[Spell] = ()


def unread(known: Known, rate_hz: int, time: TimeRange) -> IntervalSet:
    """Return the parts of a range of time in which a recording missed a process that ran."""
    distance_ns, spells = SECOND_NS // rate_hz, known.spells
    suspended = ((one.from_ns, one.to_ns) for one in spells if one.state == SUSPENDED)
    doubts = IntervalSet([*_doubtful(known, rate_hz, time), *suspended])
    found = IntervalSet(
        [
            *_without_samples(doubts, known.seen_ns, ENOUGH * distance_ns, distance_ns),
            *_after_exec(known, time, distance_ns),
            *_paused(spells, known.moved_ns, time.to_ns),
        ]
    )
    return IntervalSet(found.ranges_between(*time))


def _doubtful(known: Known, rate_hz: int, time: TimeRange) -> Iterator[TimeRange]:
    """Yield spans in which too few reads succeeded, each with its neighbors.

    Parts of these spans may lack samples.
    """
    pulses = known.pulses
    if not pulses and known.failed_ns:  # assume that py-spy slept as often as was due
        times_ns = [*range(*time, ENOUGH * SECOND_NS // rate_hz), time.to_ns]
        pulses = [
            Pulse(at_ns, (at_ns - time.from_ns) * rate_hz // SECOND_NS, 0) for at_ns in times_ns
        ]
    blocks = list(_blocks(pulses, rate_hz)) if pulses else []
    are_read = [_is_read(*block, known.failed_ns, rate_hz, time.to_ns) for block in blocks]
    for place, (first, last) in enumerate(blocks):
        if not all(are_read[max(place - 1, 0) : place + 2]):
            yield TimeRange(first.at_ns, last.at_ns)


def _blocks(pulses: Sequence[Pulse], rate_hz: int) -> Iterator[tuple[Pulse, Pulse]]:
    """Yield spans between pulses that are long enough to tell if samples were taken."""
    first = pulses[0]
    for pulse in pulses[1:]:
        if (pulse.at_ns - first.at_ns) * rate_hz >= ENOUGH * SECOND_NS or pulse is pulses[-1]:
            yield first, pulse
            first = pulse


def _is_read(first: Pulse, last: Pulse, failed_ns: Sequence[int], rate_hz: int, to_ns: int) -> bool:
    """Return whether about as many reads succeeded in a span as were due.

    The span counts up to the end of the recording.
    """
    due = max(min(last.at_ns, to_ns) - first.at_ns, 0) * rate_hz / SECOND_NS
    failed = bisect_left(failed_ns, last.at_ns) - bisect_left(failed_ns, first.at_ns)
    # py-spy does not sleep after a read that takes longer than the sampling interval. But a failed
    # read may take that long too.
    busy_ns = 0 if failed else last.busy_ns - first.busy_ns
    done = last.sleeps - first.sleeps - failed + busy_ns * rate_hz / SECOND_NS
    return done >= due - _DEVIATIONS * math.sqrt(due)


def _after_exec(known: Known, time: TimeRange, distance_ns: int) -> Iterator[TimeRange]:
    """Yield the rest of a recording in which the process became another program.

    The recording goes on reading the program that is gone.
    """
    for changed in _changes(known.spells):
        if changed.overlaps(time):
            last_ns = max((at_ns + distance_ns for at_ns in known.seen_ns[-1:]), default=0)
            yield TimeRange(max(changed.from_ns, last_ns)).within(time)
            return


def _without_samples(
    doubts: IntervalSet, seen_ns: Sequence[int], least_ns: int, distance_ns: int
) -> Iterator[TimeRange]:
    """Yield the parts of doubtful spans without a sample for longer than ``least_ns``.

    A sample stands for one sampling interval after it.
    """
    for start_ns, end_ns in doubts.ranges():
        inner = seen_ns[bisect_left(seen_ns, start_ns - distance_ns) : bisect_left(seen_ns, end_ns)]
        begins = [start_ns, *(max(at_ns + distance_ns, start_ns) for at_ns in inner)]
        for begin_ns, until_ns in zip(begins, [*inner, end_ns], strict=True):
            if until_ns - begin_ns > least_ns:
                yield TimeRange(begin_ns, until_ns)


def _paused(spells: Sequence[Spell], moved_ns: Sequence[int], end_ns: int) -> Iterator[TimeRange]:
    """Yield when a process was paused.

    That is from the last sign of life before a pause to the first one after it.

    A stack that changes is such a sign, and so is a look at a process that runs. If there is no
    later sign, the pause lasts until the end.
    """
    for before, pause, after in _with_neighbors(spells):
        if pause.state in (STOPPED, FROZEN):
            begun_ns = [at_ns for at_ns in moved_ns if at_ns <= pause.from_ns]
            ended_ns = [at_ns for at_ns in moved_ns if at_ns >= pause.to_ns]
            begun_ns += [before.to_ns] if before else []
            ended_ns += [after.from_ns] if after else []
            yield TimeRange(
                max(begun_ns, default=pause.from_ns),
                min(ended_ns, default=max(pause.to_ns, end_ns)),
            )


def _with_neighbors(spells: Sequence[Spell]) -> Iterator[tuple[Spell | None, Spell, Spell | None]]:
    """Yield each spell between the one before it and the one after it, if there are such."""
    return zip([None, *spells], spells, [*spells[1:], None], strict=False)


def _changes(spells: Iterable[Spell]) -> Iterator[TimeRange]:
    """Yield the times in which a process became another program."""
    for before, after in pairwise(spell for spell in spells if spell.image):
        if before.image != after.image:
            yield TimeRange(before.to_ns, after.from_ns)


class Account:
    """What was read of one process, in order of time, and why the rest was not.

    ``put`` takes gaps.

    Its memory grows with what changed, not with the time for which it looks.
    """

    def __init__(self, identity: Identity, put: Callable[[GapFound], object]) -> None:
        self._identity, self._put = identity, put
        self._spells: list[Spell] = []
        self._lately: deque[ProcessSnapshot] = deque(maxlen=_LATELY)
        self._read_to_ns: int | None = None
        self._words: Counter[str] = Counter()
        self._found: deque[tuple[int, str]] = deque(maxlen=_LATELY)

    def look(self, look: ProcessSnapshot) -> bool:
        """Take a look that is later than those before.

        Returns whether the process has become another program since the look before.
        """
        before = (
            self._spells[-1]
            if self._spells
            else Spell(look.at_ns, look.at_ns, look.pause, look.image)
        )
        image = look.image or before.image
        if look.at_ns - before.to_ns > LATE_NS:
            self._spells.append(Spell(before.to_ns, look.at_ns, self._why_late(look), image))
        elif look.pause == before.state and image == before.image:
            self._spells[-1:] = [before._replace(to_ns=look.at_ns)]
            self._lately.append(look)
            return False
        self._spells.append(Spell(look.at_ns, look.at_ns, look.pause, image))
        self._lately.append(look)
        return image != before.image != 0

    def _why_late(self, look: ProcessSnapshot) -> str:
        """Return why nothing looked for a while.

        It depends on whether the process ran meanwhile as much as it did before.
        """
        first, last = self._lately[0], self._lately[-1]
        usual = (
            (last.runs - first.runs) * (look.at_ns - last.at_ns) / max(last.at_ns - first.at_ns, 1)
        )
        is_known = usual >= ENOUGH and last.image == look.image
        return SUSPENDED if is_known and 2 * (look.runs - last.runs) < usual else PROFD_STOPPED

    def spells(self, from_ns: int) -> list[Spell]:
        """Return what the looks found from a time on, and the last spell before it."""
        first = bisect_left([spell.to_ns for spell in self._spells], from_ns)
        return self._spells[max(first - 1, 0) :]

    def hear(self, words: str) -> None:
        """Note what py-spy said when it could not read.

        It counts until something is read again.
        """
        if words in self._words or len(self._words) < _MOST_WORDS:
            self._words[words] += 1

    def find(self, at_ns: int, cause: str) -> None:
        """Note a reason why py-spy cannot read, as found at a moment."""
        self._found.append((at_ns, cause))

    def rest(self) -> None:
        """Note that nothing is to be read until the next stretch, which makes no gap."""
        self._read_to_ns = None
        self._words.clear()

    def take(
        self, read: Iterable[tuple[int, int]], distance_ns: int, failed: Sequence[tuple[int, str]]
    ) -> None:
        """Take the stretches that a recording has read at this sampling interval.

        The time between two of them is a gap. ``failed`` are the recording's failed reads with
        py-spy's words, in order of time.
        """
        for from_ns, to_ns in read:
            before_ns = self._read_to_ns
            if before_ns is not None and from_ns - before_ns > distance_ns:
                self._hear_in(failed, TimeRange(before_ns, from_ns))
                self._explain(before_ns, from_ns, ENOUGH * distance_ns)
            self._read_to_ns = max(to_ns, before_ns or 0)
            self._words.clear()
            self._spells = self.spells(self._read_to_ns - LATE_NS)
        self._hear_in(failed, TimeRange(self._read_to_ns or 0))

    def _hear_in(self, failed: Sequence[tuple[int, str]], time: TimeRange) -> None:
        for at_ns, words in failed:
            if time.holds(at_ns):
                self.hear(words)

    def close(self, at_ns: int) -> None:
        """Note that nothing more is read.

        A process that has not ended by then was not read to its end.
        """
        if self._read_to_ns is not None and at_ns - self._read_to_ns > LATE_NS:
            self._explain(self._read_to_ns, at_ns, 0)

    def _explain(self, from_ns: int, to_ns: int, chance_ns: int) -> None:
        """Store the gaps in a range of time, each with its reason.

        A gap without a reason may last ``chance_ns`` by chance.
        """
        for start_ns, end_ns, reason in self._reasons(from_ns, to_ns, chance_ns):
            if reason == UNREADABLE and not self._words and end_ns - start_ns <= chance_ns:
                continue
            said = self._words.most_common(1)[0][0] if self._words else "it took no samples"
            causes = [
                cause for at_ns, cause in self._found if start_ns <= at_ns <= end_ns + LATE_NS
            ]
            text = "; ".join([*causes[:1], said]) if reason == UNREADABLE else _IN_WORDS[reason]
            self._put(GapFound(self._identity, start_ns, end_ns, reason, text))

    def _reasons(self, from_ns: int, to_ns: int, chance_ns: int) -> list[tuple[int, int, str]]:
        """Return the parts of a gap, each with its reason."""
        parts: list[tuple[int, int, str]] = []
        at_ns = from_ns
        for before, spell, after in _with_neighbors(self._spells):
            if spell.state:  # it began and ended between two looks that differ
                begin_ns = max(before.to_ns if before else spell.from_ns, at_ns)
                end_ns = min(after.from_ns if after else spell.to_ns, to_ns)
                if begin_ns < end_ns:
                    before_ns = self._otherwise(at_ns, begin_ns, chance_ns)
                    parts += [(at_ns, begin_ns, before_ns), (begin_ns, end_ns, spell.state)]
                    at_ns = end_ns
        parts.append((at_ns, to_ns, self._otherwise(at_ns, to_ns, chance_ns)))
        return _joined(parts)

    def _otherwise(self, from_ns: int, to_ns: int, chance_ns: int) -> str:
        """Return why a process that ran was not read.

        If the looks first saw another program just before a gap, the exec began the gap: the
        recorded end of what was read may be up to ``chance_ns`` too late.
        """
        is_exec = any(
            changed.from_ns < to_ns and changed.to_ns >= from_ns - chance_ns
            for changed in _changes(self._spells)
        )
        return EXEC if is_exec else UNREADABLE


def _joined(parts: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return the parts of a gap, joined into as few as possible.

    The time that py-spy takes to notice the begin and the end of a pause belongs to that pause.
    """
    reasons = {reason for start_ns, end_ns, reason in parts if start_ns < end_ns}
    found: list[tuple[int, int, str]] = []
    for start_ns, end_ns, reason in parts:
        if end_ns - start_ns < LATE_NS and reason == UNREADABLE and reasons != {UNREADABLE}:
            reason = ""  # takes the reason of its neighbor
        if found and (not reason or found[-1][2] in (reason, "")):
            start_ns, _, before = found.pop()
            reason = before or reason
        if start_ns < end_ns:
            found.append((start_ns, end_ns, reason))
    return found
