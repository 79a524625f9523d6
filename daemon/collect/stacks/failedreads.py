"""What reads that failed tell of stacks that are far deeper than those around them. Pure.

A read fails where the thread moved on while its frames were read one by one: of a recursion 200 deep a fifth of all
reads fails, of a flat loop beside it none. Left out, that takes time from the deep stack, which is seen too seldom:
three points and more where it lasts about as long as the distance of samples. py-spy says in its log when it failed and
at which thread, so such a moment is taken for what it most likely was, a sample of the deep stack. Among stacks of like
depth it is their pace, not their depth, that makes reads fail, and nothing tells in which of them it was: there a read
that failed stays no sample.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from profd.daemon.clock import MICROSECOND_NS, SECOND_NS
from profd.daemon.collect.stacks.chrometrace import Change, ThreadTrace
from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]

LOG_FAILURES = {"RUST_LOG": "py_spy=warn"}
"""What has py-spy write a line with the time for each read that fails."""
_LOGGED = re.compile(
    rb"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{1,9})Z +WARN +py_spy\] Failed to get stack trace from \d+: ([^\n]*)",
    re.MULTILINE,
)
_OF_THREAD = re.compile(rb" for thread (\d{1,20})\b")
_FAR_DEEPER = 8
"""So many times the frames: what a training loop has, from its script to the innermost module, is less."""
_NEARBY_DISTANCES = 3.0
"""Which stacks a thread was in at a moment is told by those that it was seen in about then, by so many distances."""
_REACH = 4.0
# Numbers between 0 and 1 that are spread evenly, however many are taken: by chance, but the same every time.
_SPREAD, _SPREAD_OTHERWISE = (math.sqrt(5) - 1) / 2, math.sqrt(2) - 1


class FailedRead(msgspec.Struct, frozen=True):
    """A read that failed: when, and at which thread as the interpreter calls it (None: it does not say)."""

    at_ns: int
    ident: int | None


def read_log(said: bytes, wall_ahead_ns: int) -> tuple[FailedRead, ...]:
    """Return the failed reads that py-spy logged, by a clock that the wall clock is ahead of by so much, in order.

    What has no time that can be is left out.
    """
    found = []
    for seconds, fraction, why in _LOGGED.findall(said):
        try:
            at = datetime.fromisoformat(f"{seconds.decode()}+00:00")
        except ValueError:
            continue
        wall_ns = int(at.timestamp()) * SECOND_NS + int(fraction.ljust(9, b"0"))
        thread = _OF_THREAD.search(why)
        found.append(FailedRead(wall_ns - wall_ahead_ns, int(thread[1]) if thread else None))
    return tuple(found)


def without_log(said: bytes) -> bytes:
    """Return what py-spy said beside its log."""
    return _LOGGED.sub(b"", said)


def as_failed(
    traces: Sequence[ThreadTrace], failed: Sequence[FailedRead], zero_ns: int, samples: int
) -> list[ThreadTrace]:
    """Return what threads did, with the far deeper stacks that reads failed in.

    ``zero_ns`` is the time of the trace's zero, ``samples`` how many stacks were read of all threads.
    """
    whole_us = sum(trace.changes[-1].at_us - trace.changes[0].at_us for trace in traces)
    if not failed or not whole_us or not samples:
        return list(traces)
    found = []
    for trace in traces:
        times = sorted((one.at_ns - zero_ns) // MICROSECOND_NS for one in failed if one.ident == trace.ident)
        found.append(_Failures(trace, whole_us / samples).in_deep_stacks(times))
    return found


class Visit(msgspec.Struct, frozen=True):
    """A stay in another stack than the one that was seen before and after."""

    from_us: int
    until_us: int
    stack: Stack


class _Failures:
    """The failed reads of one thread; ``distance_us`` is the mean distance of its samples."""

    def __init__(self, trace: ThreadTrace, distance_us: float) -> None:
        self._trace = trace
        self._distance_us = distance_us
        self._nearby_us = _NEARBY_DISTANCES * distance_us
        self._starts_us = [change.at_us for change in trace.changes]

    def in_deep_stacks(self, times_us: Sequence[int]) -> ThreadTrace:
        """Return the thread's trace with a visit of a far deeper stack at each of these times that was most likely one.

        Like a sample, a visit stands for the time up to the next one: of the stack that was left, when it is read
        again is not known, as reads that repeat a stack leave no trace. It takes as long as such a distance may be.
        """
        visits: dict[int, list[Visit]] = {}
        for number, at_us in enumerate(times_us, start=1):
            place = bisect_right(self._starts_us, at_us) - 1
            if not 0 <= place < len(self._starts_us) - 1:
                continue
            stack = self._deep_stack(place, at_us, number * _SPREAD % 1)
            if stack is not None:
                stay_us = -math.log(1 - number * _SPREAD_OTHERWISE % 1) * self._distance_us
                until_us = min(at_us + round(stay_us), self._starts_us[place + 1])
                visits.setdefault(place, []).append(Visit(at_us, until_us, stack))
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

    def _deep_stack(self, place: int, at_us: int, chance: float) -> Stack | None:
        """Return the far deeper stack that a read failed in, as likely as it is; None for any other."""
        held = _frames(self._trace.changes[place].frames)
        likely = self._likely(place, at_us)
        left = chance * sum(likely.values())
        for stack, weight in likely.items():
            left -= weight
            if left <= 0:
                return stack if _frames(stack) >= _FAR_DEEPER * held else None
        return None

    def _likely(self, place: int, at_us: int) -> dict[Stack, float]:
        """Return by stack how likely a read failed in it: its time about then, by how long it takes to be read."""
        starts_us, reach_us = self._starts_us, _REACH * self._nearby_us
        first = max(bisect_left(starts_us, at_us - reach_us) - 1, 0)
        last = min(bisect_right(starts_us, at_us + reach_us), len(starts_us) - 1)
        likely: dict[Stack, float] = {}
        for number in range(first, last):
            frames = self._trace.changes[number].frames
            time_us = self._near_us(starts_us[number + 1] - at_us) - self._near_us(starts_us[number] - at_us)
            likely[frames] = likely.get(frames, 0.0) + time_us * _frames(frames)
        return likely

    def _near_us(self, distance_us: float) -> float:
        """Return how much time there is up to a distance from a moment, where it counts less the further away it is."""
        fading = self._nearby_us * math.exp(-abs(distance_us) / self._nearby_us)
        return fading if distance_us < 0 else 2 * self._nearby_us - fading


def _frames(stack: Stack) -> int:
    """Return how long a stack takes to be read, in frames."""
    return 1 + len(stack)


def _visited(change: Change, visits: Sequence[Visit], end_us: int) -> Iterator[Change]:
    """Yield a change with the visits of other stacks before the next one, at ``end_us``."""
    yield change
    ends_us = [*(visit.from_us for visit in visits[1:]), end_us]
    for visit, next_us in zip(visits, ends_us, strict=False):
        yield Change(visit.from_us, visit.stack)
        if visit.until_us < next_us:
            yield Change(visit.until_us, change.frames)
