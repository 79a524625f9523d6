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
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from profd.daemon.collect.stacks.chrometrace import Change, ThreadTrace
from profd.daemon.collect.stacks.paces import Paces
from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]

_FAR_HARDER = 8
"""So many times the frames, or the torn reads: what a training loop has, from its script to the innermost module, is
less."""
_NEAR, _FAR, _FAR_WEIGHT = 3.0, 15.0, 0.1
"""Which stacks a thread was in at a moment is told by those that it was seen in about then: by so many distances of
samples for the most part, and a little by more, since where all reads fail nothing is seen."""
_REACH = 30.0
# An interval has this share of it left for its stack, however many reads failed there.
_LEAST_HELD = 0.1
# Its multiples, less their whole part, are spread evenly however many are taken: chance, but the same every time.
_SPREAD = (math.sqrt(5) - 1) / 2


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
        self._starts_us = [change.at_us for change in trace.changes]
        whole_us = self._starts_us[-1] - self._starts_us[0]
        self._distance_us = max(whole_us / (samples + len(times_us)), 1.0)
        self._places = [bisect_right(self._starts_us, at_us) - 1 for at_us in times_us]
        self._near_us, self._far_us = _NEAR * self._distance_us, _FAR * self._distance_us
        # Each stack is looked at here only: there are dozens of them around each time.
        numbers: dict[Stack, int] = {}
        self._numbers = [numbers.setdefault(change.frames, len(numbers)) for change in trace.changes]
        self._stacks = list(numbers)
        self._difficulties = [(1 + len(stack)) * paces.of(stack) for stack in self._stacks]
        """How likely a read of each fails, beside others: by how long it takes, in frames, and its pace."""

    def visited(self) -> ThreadTrace:
        """Return the thread's trace with a visit of a far harder stack at each of these times that was most likely one.

        Like a sample, a visit stands for the time up to the next one. That is the next read which fails or shows
        another stack, unless the thread is back before in the stack that it left, which leaves no trace. But reads come
        when they come, whatever the thread does: on average a visit stands for the distance of samples.
        """
        found = {number: visit for number in range(len(self._times_us)) if (visit := self._visit(number)) is not None}
        if not found:
            return self._trace
        lengths_us = [visit.until_us - visit.from_us for visit in found.values()]
        most_us = round(cap(lengths_us, len(lengths_us) * self._distance_us))
        visits: defaultdict[int, list[Visit]] = defaultdict(list)
        for number, visit in found.items():
            until_us = min(visit.until_us, visit.from_us + most_us)
            visits[self._places[number]].append(Visit(visit.from_us, until_us, visit.stack))
        return msgspec.structs.replace(self._trace, changes=tuple(self._changes(visits)))

    def _visit(self, number: int) -> Visit | None:
        """Return the visit of a far harder stack that a read failed in, up to the next sight of anything, if any."""
        at_us, place = self._times_us[number], self._places[number]
        if not 0 <= place < len(self._starts_us) - 1:
            return None
        stack = self._hard_stack(place, at_us, (number + 1) * _SPREAD % 1)
        if stack is None:
            return None
        return Visit(at_us, min([self._starts_us[place + 1], *self._times_us[number + 1 : number + 2]]), stack)

    def _changes(self, visits: Mapping[int, Sequence[Visit]]) -> Iterator[Change]:
        """Yield the changes of the thread, with the visits in each of its intervals."""
        *changes, end = self._trace.changes
        for place, (change, end_us) in enumerate(zip(changes, self._starts_us[1:], strict=True)):
            yield from _visited(change, visits.get(place, ()), end_us)
        yield end

    def _hard_stack(self, place: int, at_us: int, chance: float) -> Stack | None:
        """Return the far harder stack that a read failed in, as likely as it is; None for any other."""
        reach_us = _REACH * self._distance_us
        first = max(bisect_left(self._starts_us, at_us - reach_us) - 1, 0)
        last = min(bisect_right(self._starts_us, at_us + reach_us), len(self._starts_us) - 1)
        far_harder = _FAR_HARDER * self._difficulties[self._numbers[place]]
        hardest = max((self._difficulties[number] for number in self._numbers[first:last]), default=1.0)
        if hardest < far_harder:
            return None
        likely = self._likely(first, last, at_us, hardest)
        left = chance * sum(likely.values())
        for number, weight in likely.items():
            left -= weight
            if left <= 0:
                return self._stacks[number] if self._difficulties[number] >= far_harder else None
        return None

    def _likely(self, first: int, last: int, at_us: int, hardest: float) -> dict[int, float]:
        """Return by stack how likely a read failed in it: its time about then, by how hard it is to read.

        Of the intervals from the ``first`` up to the ``last``. Reads that failed while a stack was held were in it the
        less, the harder others nearby are.
        """
        failed_us = self._failed_us(first, last, at_us)
        past_us = [self._past_us(start_us - at_us) for start_us in self._starts_us[first : last + 1]]
        times_us = [later_us - before_us for before_us, later_us in itertools.pairwise(past_us)]
        likely: dict[int, float] = {}
        for number, time_us, lost_us in zip(self._numbers[first:last], times_us, failed_us, strict=True):
            difficulty = self._difficulties[number]
            left_us = max(time_us - lost_us * (1 - difficulty / hardest), _LEAST_HELD * time_us)
            likely[number] = likely.get(number, 0.0) + left_us * difficulty
        return likely

    def _past_us(self, distance_us: float) -> float:
        """Return how much time there is up to a distance from a moment, which counts the less the further away it is.

        Counted from the moment, so what is before it is as much as what is after it.
        """
        near_us, far_us = self._near_us, self._far_us
        near = near_us * math.exp(-abs(distance_us) / near_us)
        left_us = near + _FAR_WEIGHT * far_us * math.exp(-abs(distance_us) / far_us)
        return left_us if distance_us < 0 else 2 * (near_us + _FAR_WEIGHT * far_us) - left_us

    def _failed_us(self, first: int, last: int, at_us: int) -> list[float]:
        """Return for how much time of intervals reads failed, where it counts less the further away it is."""
        lost_us = [0.0] * (last - first)
        for number in range(bisect_left(self._places, first), bisect_left(self._places, last)):
            distance_us = abs(self._times_us[number] - at_us)
            if distance_us < _REACH * self._distance_us:
                weight = math.exp(-distance_us / self._near_us) + _FAR_WEIGHT * math.exp(-distance_us / self._far_us)
                lost_us[self._places[number] - first] += self._distance_us * weight
        return lost_us


def cap(lengths: Sequence[float], whole: float) -> float:
    """Return what lengths have to be cut to so that they add up to ``whole``; the longest where they are too short."""
    left = whole
    for longer, length in zip(range(len(lengths), 0, -1), sorted(lengths), strict=True):
        if length * longer >= left:
            return left / longer
        left -= length
    return max(lengths)


def _visited(change: Change, visits: Sequence[Visit], end_us: int) -> Iterator[Change]:
    """Yield a change with the visits of other stacks before the next one, at ``end_us``."""
    yield change
    ends_us = [*(visit.from_us for visit in visits[1:]), end_us]
    for visit, next_us in zip(visits, ends_us, strict=False):
        yield Change(visit.from_us, visit.stack)
        if visit.until_us < next_us:
            yield Change(visit.until_us, change.frames)
