"""Handle misread stacks: torn ones and failed reads.

Torn stacks are mended if possible. Failed reads are given to the most likely stack. This module is
pure.

py-spy reads a running interpreter without stopping it. Now and then the frames of two moments are
glued together, or memory that is no frame is taken for one. Such a stack does not begin as threads
begin, has a frame that cannot be one, or has a call that its line cannot make. To drop a whole
stack is worse than to keep a torn one, so a call counts as impossible only if it is rare and all
that is known speaks against it.

Stacks are read from the leaf to the root. The most frequent tear is a caller that went on to its
next line before it was read. If another line of the same function is known for the call, the stack
is mended, not dropped. If the thread returns from a function meanwhile, the outer frames are lost,
and the inner ones are often those of a whole stack that was seen: then the torn stack is replaced
by that one.

A read fails if the thread moves on while its frames are read one by one. A fifth of all reads fails
in a recursion 200 deep, half in Python that calls and returns all the time, and none in a flat loop
or in a long call into C. If they were left out, the stacks that are hard to read would lose time:
three points in the recursion, and twenty in a training run that writes thousands of log lines a
step.

py-spy's log says when a read failed, so such a moment becomes a *visit*: a sample of the far harder
stack that the thread was most likely in. How hard a stack is depends on its frames and on the share
of torn reads around it (``TornShares``): code that enters and leaves functions all the time also
causes torn reads, and these show which code it was. If all nearby stacks are about as hard, the
stack of a failed read is unknown: it then stays no sample.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import NamedTuple

from profd.daemon.stacks.evidence import Code, StackEvidence, TornShares, common, is_possible_call
from profd.daemon.stacks.pyspy import StackChange
from profd.daemon.store.records import Frame, Stack

# The functions with which CPython starts a thread's Python code: scripts, `-m` and interactive code
# in the main thread, threading's bootstrap in others (preceded by its class from Python 3.11 on).
ROOT_FUNCTIONS = frozenset({"<module>", "_run_module_as_main", "_bootstrap", "Thread._bootstrap"})


def valid_roots(stacks: Iterable[tuple[Stack, int]]) -> frozenset[str]:
    """Return the known roots of one thread's stacks, or else its most frequent root.

    Threads of C libraries, for example, have no known root.
    """
    roots: Counter[str] = Counter()
    for stack, samples in stacks:
        if stack:
            roots[stack[0].function] += samples
    return frozenset(ROOT_FUNCTIONS & roots.keys() or (root for root, _ in roots.most_common(1)))


def mend(
    stacks: Sequence[Stack], roots: frozenset[str], evidence: StackEvidence
) -> list[Stack | None]:
    """Learn from the stacks of one thread, in order of time, and return them mended.

    A stack that cannot be mended is returned as None.
    """
    # Stacks are long, and their hashes costly.
    numbers: dict[Stack, int] = {}
    order = [numbers.setdefault(stack, len(numbers)) for stack in stacks]
    distinct, times = list(numbers), Counter(order)
    evidence.calls.add(distinct, order)
    if evidence.source is not None:
        evidence.source.allow_more()
    torn_frames = {frame for frame in set().union(*distinct) if not is_plausible(frame)}
    mender = _Mender(roots, torn_frames, evidence)
    mended = list(map(mender.possible, distinct))
    seen = [
        (stack, found, times[number])
        for number, (stack, found) in enumerate(zip(distinct, mended, strict=True))
    ]
    evidence.endings.learn({stack: often for stack, found, often in seen if found == stack})
    for number, (stack, found, often) in enumerate(seen):
        if found is None:
            mended[number] = evidence.endings.whole(stack, roots)
            seen[number] = stack, mended[number], often
    evidence.torn_shares.learn(*_counted(seen))
    return [mended[number] for number in order]


class _Mender:
    """Mends the stacks of one thread by the calls in them, one stack after the other."""

    def __init__(
        self, roots: frozenset[str], torn_frames: Set[Frame], evidence: StackEvidence
    ) -> None:
        self._roots, self._torn_frames = roots, torn_frames
        self._caller_of = functools.cache(partial(_caller_of, evidence))
        self._before: Stack = ()
        self._callers: list[Frame | None] = []

    def possible(self, stack: Stack) -> Stack | None:
        """Return a stack as it can have been; None if it cannot."""
        has_root = bool(stack) and stack[0].function in self._roots
        if not has_root or not self._torn_frames.isdisjoint(stack):
            return None
        callers = self._callers
        del callers[max(common(self._before, stack) - 1, 0) :]
        callers.extend(map(self._caller_of, itertools.pairwise(stack[len(callers) :])))
        self._before = stack
        whole = [caller for caller in callers if caller is not None]
        return (*whole, stack[-1]) if len(whole) == len(callers) else None


def _caller_of(evidence: StackEvidence, call: tuple[Frame, Frame]) -> Frame | None:
    """Return the line that a call can have come from.

    It is the line that was read, or another one of its function.
    """
    caller, callee = call
    return (
        caller
        if is_possible_call(caller, callee, evidence.calls, evidence.source)
        else evidence.calls.usual_line(caller, callee[:2])
    )


def _counted(stacks: Sequence[tuple[Stack, Stack | None, int]]) -> tuple[dict[Stack, float], ...]:
    """Return how often stacks were seen, and how often they were torn.

    A torn stack counts as the stack that it was or may have been.

    ``stacks`` has (stack as read, mended stack or None, times seen).
    """
    seen: defaultdict[Stack, float] = defaultdict(float)
    torn: defaultdict[Stack, float] = defaultdict(float)
    known: Counter[Stack] = Counter()
    for stack, found, often in stacks:
        if found is not None:
            known[found] += often
            torn[found] += often if found != stack else 0
    seen.update(known)
    lost = [(stack, often) for stack, found, often in stacks if found is None]
    # These sets are needed only if a stack was lost, and are only iterated over.
    codes = (
        [({frame[:2] for frame in one}, {frame.file for frame in one}) for one in known]
        if lost
        else []
    )
    places = list(zip(codes, known.items(), strict=False))
    for stack, times in lost:
        near = _near(stack, places)
        whole = sum(often for _, often in near)
        for one, often in near:
            seen[one] += times * (often / whole)
            torn[one] += times * (often / whole)
    return seen, torn


def _near(
    stack: Stack, places: Sequence[tuple[tuple[set[Code], set[str]], tuple[Stack, int]]]
) -> Sequence[tuple[Stack, int]]:
    """Return the known stacks that a lost one may have been, and how often each was seen.

    ``places`` has each known stack after its functions and its files.
    """
    # It may have been any stack with the same function in it, or else any of the same file.
    inner = stack[::-1]
    keys = [*((0, frame[:2]) for frame in inner), *((1, frame.file) for frame in inner)]
    matches = ([one for code, one in places if key in code[by]] for by, key in keys)
    return next(filter(None, matches), [])


_LINES = 1 << 31
"""A code object keeps its first line as a C int, and so each later line.

A line that was read torn is negative.
"""


def is_plausible(frame: Frame) -> bool:
    """Return whether a frame can be a real one.

    Memory to which nothing was written yet has no names, or NUL bytes in their place.

    The characters of a name say nothing else: a folder may be called anything, and so may generated
    code.
    """
    return bool(frame.function.strip("\0") and frame.file.strip("\0")) and 0 <= frame.line < _LINES


_FAR_HARDER = 8
"""A far harder stack has this many times the frames, or the torn reads.

Within a training loop, from its script to the innermost module, the factor is less.
"""
_NEAR, _FAR, _FAR_WEIGHT = 3.0, 15.0, 0.1
"""Stacks seen within this many sampling intervals show in what stack a thread was at a moment.

Those further away count a little too: if all reads fail, nothing is seen nearby.
"""
_REACH = 30.0


def with_visits(
    changes: tuple[StackChange, ...],
    failed_us: Sequence[int],
    samples: int,
    torn_shares: TornShares,
) -> tuple[StackChange, ...]:
    """Return a thread's changes, with visits of far harder stacks when reads failed.

    ``failed_us`` are the times of the failed reads, ``samples`` is how many reads succeeded, and
    ``torn_shares`` are those of the process.

    Like a sample, a visit stands for the time up to the next read that leaves a trace: one that
    fails or shows another stack. If the thread is back earlier in the stack that it left, that
    leaves no trace. But the times of reads do not depend on what the thread does, so on average a
    visit stands for one sampling interval.
    """
    if not failed_us:
        return changes
    thread = _Thread(changes, sorted(failed_us), samples, torn_shares)
    visits = [
        visit for number in range(len(failed_us)) if (visit := thread.visit(number)) is not None
    ]
    if not visits:
        return changes
    lengths_us = [visit.until_us - visit.from_us for visit in visits]
    most_us = round(cap(lengths_us, len(lengths_us) * thread.distance_us))
    by_place = {
        place: list(here)
        for place, here in itertools.groupby(visits, key=lambda visit: visit.place)
    }
    visited: list[StackChange] = []
    for place, (change, after) in enumerate(itertools.pairwise(changes)):
        visited.append(change)
        here = by_place.get(place, [])
        ends_us = [*(visit.from_us for visit in here[1:]), after.at_us]
        for visit, next_us in zip(here, ends_us, strict=False):
            until_us = min(visit.until_us, visit.from_us + most_us)
            visited.append(StackChange(visit.from_us, visit.stack))
            if until_us < next_us:
                visited.append(StackChange(until_us, change.frames))
    return (*visited, changes[-1])


class _Visit(NamedTuple):
    """A stay in another stack than the one that was seen before and after.

    It lies in the interval with index ``place``.
    """

    place: int
    from_us: int
    until_us: int
    stack: Stack


class _Thread:
    """A thread with failed reads, and ``samples`` reads that did not fail."""

    def __init__(
        self,
        changes: Sequence[StackChange],
        times_us: Sequence[int],
        samples: int,
        torn_shares: TornShares,
    ) -> None:
        self._times_us = times_us
        self._starts_us = [change.at_us for change in changes]
        self.distance_us = max(
            (self._starts_us[-1] - self._starts_us[0]) / (samples + len(times_us)), 1.0
        )
        """The mean sampling interval."""
        self._places = [bisect_right(self._starts_us, at_us) - 1 for at_us in times_us]
        self._near_us, self._far_us = _NEAR * self.distance_us, _FAR * self.distance_us
        # Number the stacks once: there are dozens of them around each failed read.
        numbers: dict[Stack, int] = {}
        self._numbers = [numbers.setdefault(change.frames, len(numbers)) for change in changes]
        self._stacks = list(numbers)
        self._difficulties = [(1 + len(stack)) * torn_shares.of(stack) for stack in self._stacks]
        """How likely a read of each stack fails, relative to the others.

        It depends on how long the read takes, in frames, and on the stack's torn share.
        """

    def visit(self, number: int) -> _Visit | None:
        """Return the visit of a far harder stack in which a read failed, if there is one.

        It lasts until the next change or the next failed read.
        """
        at_us, place = self._times_us[number], self._places[number]
        if not 0 <= place < len(self._starts_us) - 1:
            return None
        reach_us = _REACH * self.distance_us
        first = max(bisect_left(self._starts_us, at_us - reach_us) - 1, 0)
        last = min(bisect_right(self._starts_us, at_us + reach_us), len(self._starts_us) - 1)
        far_harder = _FAR_HARDER * self._difficulties[self._numbers[place]]
        hardest = max(
            (self._difficulties[stack] for stack in self._numbers[first:last]), default=1.0
        )
        if hardest < far_harder:
            return None
        likely = self._likely(first, last, at_us, hardest)
        # The fractional parts of multiples of this number are spread evenly, however many are
        # taken: like chance, but the same every time.
        left = (number + 1) * (math.sqrt(5) - 1) / 2 % 1 * sum(likely.values())
        for stack, weight in likely.items():
            left -= weight
            if left <= 0:
                if self._difficulties[stack] < far_harder:
                    return None
                until_us = min(
                    [self._starts_us[place + 1], *self._times_us[number + 1 : number + 2]]
                )
                return _Visit(place, at_us, until_us, self._stacks[stack])
        return None

    def _likely(self, first: int, last: int, at_us: int, hardest: float) -> dict[int, float]:
        """Return for each stack how likely a read failed in it.

        That is the stack's time around ``at_us``, weighted by how hard it is to read.
        """
        failed_us = [0.0] * (last - first)  # the time of each interval whose reads failed
        for number in range(bisect_left(self._places, first), bisect_left(self._places, last)):
            distance_us = abs(self._times_us[number] - at_us)
            if distance_us < _REACH * self.distance_us:
                weight = math.exp(-distance_us / self._near_us) + _FAR_WEIGHT * math.exp(
                    -distance_us / self._far_us
                )
                failed_us[self._places[number] - first] += self.distance_us * weight
        past_us = [
            self._past_us(start_us - at_us) for start_us in self._starts_us[first : last + 1]
        ]
        times_us = [later_us - before_us for before_us, later_us in itertools.pairwise(past_us)]
        likely: dict[int, float] = {}
        for number, time_us, lost_us in zip(
            self._numbers[first:last], times_us, failed_us, strict=True
        ):
            difficulty = self._difficulties[number]
            # Take off the lost time, less of it from harder stacks; a tenth always stays, however
            # many reads failed there.
            left_us = max(time_us - lost_us * (1 - difficulty / hardest), 0.1 * time_us)
            likely[number] = likely.get(number, 0.0) + left_us * difficulty
        return likely

    def _past_us(self, distance_us: float) -> float:
        """Return the weighted time from the distant past up to a distance from a moment.

        Time counts less the further it is from that moment.
        """
        near_us, far_us = self._near_us, self._far_us
        near = near_us * math.exp(-abs(distance_us) / near_us)
        left_us = near + _FAR_WEIGHT * far_us * math.exp(-abs(distance_us) / far_us)
        return left_us if distance_us < 0 else 2 * (near_us + _FAR_WEIGHT * far_us) - left_us


def cap(lengths: Sequence[float], whole: float) -> float:
    """Return the cap that lengths have to be cut to so that they add up to ``whole``.

    Returns the longest length if they add up to less.
    """
    left = whole
    for longer, length in zip(range(len(lengths), 0, -1), sorted(lengths), strict=True):
        if length * longer >= left:
            return left / longer
        left -= length
    return max(lengths)
