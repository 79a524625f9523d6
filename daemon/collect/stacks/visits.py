"""What a thread most likely did when reads of it failed: it visited a stack that is far harder to read. Pure.

A read fails where the thread moved on while its frames were read one by one: of a recursion 200 deep a fifth of all
reads fails, of Python that calls and returns all the time a half, of a flat loop or a long call into C beside them
none. Left out, that takes time from the stacks that are hard to read: three points of the recursion, and twenty of a
training that writes thousands of log lines a step. When a read failed is known, so such a moment is taken for what it
most likely was, a sample of the hard stack. How hard a stack is goes by its frames, and by how many reads around there
are torn (``paces``). Among stacks that are about as hard nothing tells in which of them a read failed: there it stays
no sample.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.collect.stacks.chrometrace import Change, ThreadTrace
from profd.daemon.collect.stacks.paces import Paces
from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]

_FAR_HARDER = 8
"""So many times the frames, or the torn reads: what a training loop has, from its script to the innermost module, is
less."""
_FADING = ((3.0, 1.0), (15.0, 0.1))
"""Which stacks a thread was in at a moment is told by those that it was seen in about then: by so many distances of
samples for the most part, and a little by more, since where all reads fail nothing is seen."""
_REACH = 30.0
# An interval has this share of it left for its stack, however many reads failed there.
_LEAST_HELD = 0.1
# Numbers between 0 and 1 that are spread evenly, however many are taken: by chance, but the same every time.
_SPREAD, _SPREAD_OTHERWISE = (math.sqrt(5) - 1) / 2, math.sqrt(2) - 1


def with_visits(trace: ThreadTrace, failed_us: Sequence[int], samples: int, paces: Paces) -> ThreadTrace:
    """Return what a thread did, with visits of far harder stacks at those times at which reads failed.

    ``failed_us`` are these times, ``samples`` is how many reads did not fail, and ``paces`` is known of the process.
    """
    return _Thread(trace, sorted(failed_us), samples, paces).visited() if failed_us else trace


class Visit(msgspec.Struct, frozen=True):
    """A stay in another stack than the one that was seen before and after."""

    from_us: int
    until_us: int
    stack: Stack


class _Thread:
    """A thread of which some reads failed, and ``samples`` did not."""

    def __init__(self, trace: ThreadTrace, times_us: Sequence[int], samples: int, paces: Paces) -> None:
        self._trace = trace
        self._times_us = times_us
        self._paces = paces
        self._starts_us = [change.at_us for change in trace.changes]
        whole_us = self._starts_us[-1] - self._starts_us[0]
        self._distance_us = max(whole_us / (samples + len(times_us)), 1.0)
        self._difficulties: dict[Stack, float] = {}
        self._returning: dict[Stack, float] = {}
        self._lengths_us = [after - now for now, after in itertools.pairwise(self._starts_us)]
        before = [bisect_left(times_us, start_us) for start_us in self._starts_us]
        self._failed = [after - now for now, after in itertools.pairwise(before)]
        # What is left of each interval for its stack if no read failed in that.
        self._held_us = [
            max(length_us - failed * self._distance_us, _LEAST_HELD * length_us)
            for length_us, failed in zip(self._lengths_us, self._failed, strict=True)
        ]

    def visited(self) -> ThreadTrace:
        """Return the thread's trace with a visit of a far harder stack at each of these times that was most likely one.

        Like a sample, a visit stands for the time up to the next one. That is the next read which fails or shows
        another stack, unless the thread is back before in the stack that it left, which leaves no trace.
        """
        visits: dict[int, list[Visit]] = {}
        for number, at_us in enumerate(self._times_us, start=1):
            place = bisect_right(self._starts_us, at_us) - 1
            if not 0 <= place < len(self._starts_us) - 1:
                continue
            stack = self._hard_stack(place, at_us, number * _SPREAD % 1)
            if stack is not None:
                next_us = min([self._starts_us[place + 1], *self._times_us[number : number + 1]])
                stay_us = self._stay_us(place, next_us - at_us, number * _SPREAD_OTHERWISE % 1)
                visits.setdefault(place, []).append(Visit(at_us, at_us + round(stay_us), stack))
        if not visits:
            return self._trace
        changes = [
            one
            for place, change in enumerate(self._trace.changes)
            for one in _visited(
                change, visits.get(place, ()), self._starts_us[min(place + 1, len(self._starts_us) - 1)]
            )
        ]
        return msgspec.structs.replace(self._trace, changes=tuple(changes))

    def _stay_us(self, place: int, most_us: float, chance: float) -> float:
        """Return how long a visit lasts of which nothing is seen until ``most_us`` later: up to then, or less.

        While it lasts, reads are due at their distance and would show. Where the thread is back before in the stack
        that it left, nothing shows for as long as that lasts. ``chance`` draws one of the times that this leaves.
        """
        held = self._trace.changes[place].frames
        returns, shows = self._returns(held), 1 / self._distance_us
        shows_after = 1 / (self._lasts_us(held) + self._distance_us)
        soon = returns + shows - shows_after
        in_time = 1 - math.exp(-soon * most_us)
        is_back = shows_after * returns / soon * in_time
        drawn = chance * (is_back + shows * (1 - in_time))
        return most_us if drawn >= is_back else min(-math.log(1 - drawn / is_back * in_time) / soon, most_us)

    def _returns(self, stack: Stack) -> float:
        """Return how often in a microsecond of far harder stacks the thread goes back to this one."""
        if stack not in self._returning:
            seen = [change.frames for change in self._trace.changes[:-1]]
            is_hard = {one: self._is_far_harder(one, stack) for one in dict.fromkeys(seen)}
            back = sum(is_hard[before] and after == stack for before, after in itertools.pairwise(seen))
            hard_us = sum(
                length_us if is_hard[one] else self._distance_us * failed
                for one, length_us, failed in zip(seen, self._lengths_us, self._failed, strict=True)
            )
            self._returning[stack] = (back + 0.5) / max(hard_us, self._distance_us)
        return self._returning[stack]

    def _lasts_us(self, stack: Stack) -> float:
        """Return for how long a stack lasts; what is seen at all is seen for one distance, however soon it ends."""
        stays_us = [
            held_us
            for change, held_us in zip(self._trace.changes, self._held_us, strict=False)
            if change.frames == stack
        ]
        return max(sum(stays_us) / len(stays_us) - self._distance_us, 0.0)

    def _is_far_harder(self, one: Stack, other: Stack) -> bool:
        return self._difficulty(one) >= _FAR_HARDER * self._difficulty(other)

    def _hard_stack(self, place: int, at_us: int, chance: float) -> Stack | None:
        """Return the far harder stack that a read failed in, as likely as it is; None for any other."""
        held = self._trace.changes[place].frames
        likely = self._likely(place, at_us)
        left = chance * sum(likely.values())
        for stack, weight in likely.items():
            left -= weight
            if left <= 0:
                return stack if self._is_far_harder(stack, held) else None
        return None

    def _likely(self, place: int, at_us: int) -> dict[Stack, float]:
        """Return by stack how likely a read failed in it: its time about then, by how hard it is to read."""
        starts_us, reach_us = self._starts_us, _REACH * self._distance_us
        first = max(bisect_left(starts_us, at_us - reach_us) - 1, 0)
        last = min(bisect_right(starts_us, at_us + reach_us), len(starts_us) - 1)
        likely: dict[Stack, float] = {}
        for number in range(first, last):
            frames = self._trace.changes[number].frames
            time_us = self._near_us(starts_us[number + 1] - at_us) - self._near_us(starts_us[number] - at_us)
            time_us *= self._held_us[number] / max(self._lengths_us[number], 1)
            likely[frames] = likely.get(frames, 0.0) + time_us * self._difficulty(frames)
        return likely

    def _difficulty(self, stack: Stack) -> float:
        """Return how likely a read of a stack fails, beside others: by how long it takes, in frames, and its pace."""
        if stack not in self._difficulties:
            self._difficulties[stack] = (1 + len(stack)) * self._paces.of(stack)
        return self._difficulties[stack]

    def _near_us(self, distance_us: float) -> float:
        """Return how much time there is up to a distance from a moment, where it counts less the further away it is."""
        counted_us = 0.0
        for reach, weight in _FADING:
            reach_us = reach * self._distance_us
            fading_us = reach_us * math.exp(-abs(distance_us) / reach_us)
            counted_us += weight * (fading_us if distance_us < 0 else 2 * reach_us - fading_us)
        return counted_us


def _visited(change: Change, visits: Sequence[Visit], end_us: int) -> Iterator[Change]:
    """Yield a change with the visits of other stacks before the next one, at ``end_us``."""
    yield change
    ends_us = [*(visit.from_us for visit in visits[1:]), end_us]
    for visit, next_us in zip(visits, ends_us, strict=False):
        yield Change(visit.from_us, visit.stack)
        if visit.until_us < next_us:
            yield Change(visit.until_us, change.frames)
