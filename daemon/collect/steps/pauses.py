"""For how long a loop paused from one of its cycles to the next, as samples show: an evaluation, a checkpoint. Pure.

The main thread stands in the lines of a loop while it steps, as the source has them. Where nothing tells these lines,
or where the loop's function is a generator and on the stack now and then only, nothing is known of pauses.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.counter import Place
from profd.daemon.collect.steps.sightings import Variable
from profd.daemon.store.records import Frame, Interval

# More than the ends of cycles that a length is told by.
_KEPT = 64
_SURE = 2.0
# One that is seen in a sample or two may be a tenth as long as it seems.
_LEAST_SAMPLES = 5
# Between two recordings it is not seen what goes on.
_BETWEEN_RECORDINGS_NS = SECOND_NS

StepsBy = Callable[[Frame, str], bool]
"""Says whether a frame stands in a loop that counts by a variable, and is on the stack for as long as that lasts."""


class Pause(NamedTuple):
    """So many seconds of pause, give or take ``error_s``."""

    seconds: float
    error_s: float


NO_PAUSE = Pause(0.0, 0.0)


class _Span(NamedTuple):
    """A time in which a loop paused, sampled at ``rate_hz``."""

    from_ns: int
    to_ns: int
    rate_hz: int

    @property
    def is_sure(self) -> bool:
        """Say whether it is long enough to be told by samples."""
        return (self.to_ns - self.from_ns) * self.rate_hz >= _LEAST_SAMPLES * SECOND_NS

    def within(self, from_ns: int, to_ns: int) -> Pause:
        """Return how much of it lies between two times.

        It begins and ends somewhere between two samples, which come at Poisson intervals.
        """
        seconds = max(min(self.to_ns, to_ns) - max(self.from_ns, from_ns), 0) / SECOND_NS
        return Pause(seconds, _SURE * math.sqrt(2 * min(seconds, 1 / self.rate_hz) / self.rate_hz))


class Pauses:
    """The pauses of one loop, lately."""

    def __init__(self, counter: Variable | None = None) -> None:
        """Of the loop that counts by a variable; of none there are none."""
        self._counter = counter
        self._spans: deque[_Span] = deque(maxlen=_KEPT)
        self._was_seen = False
        self._known_to_ns = 0

    def take(
        self, intervals: Sequence[Interval], stacks: Sequence[Sequence[Frame]], rate_hz: int, steps_by: StepsBy
    ) -> None:
        """Take in what the main thread did, in order of time, until it was seen doing something else."""
        if self._counter is None or not intervals:
            return
        is_inside = {stack: self._is_inside(stacks[stack], steps_by) for stack in {one.stack for one in intervals}}
        self._was_seen = self._was_seen or any(is_inside.values())
        if not self._was_seen:
            return
        ends_ns = [*(one.start_ns for one in intervals[1:]), intervals[-1].start_ns + intervals[-1].duration_ns]
        for one, end_ns in zip(intervals, ends_ns, strict=True):
            if not is_inside[one.stack]:
                self._add(_Span(one.start_ns, end_ns, rate_hz))
            self._known_to_ns = end_ns

    def between(self, from_ns: int, to_ns: int) -> Pause | None:
        """Return for how long the loop paused between two times; None where samples do not tell, or not yet."""
        if not self._was_seen or to_ns > self._known_to_ns:
            return None
        parts = [span.within(from_ns, to_ns) for span in self._spans if span.is_sure]
        return Pause(sum(part.seconds for part in parts), math.hypot(*(part.error_s for part in parts)))

    def _add(self, span: _Span) -> None:
        """Add what a pause goes on for, or another one."""
        last = self._spans[-1] if self._spans else None
        if last is not None and last.to_ns == self._known_to_ns >= span.from_ns - _BETWEEN_RECORDINGS_NS:
            self._spans[-1] = last._replace(to_ns=span.to_ns)
        else:
            self._spans.append(span)

    def _is_inside(self, stack: Sequence[Frame], steps_by: StepsBy) -> bool:
        assert self._counter is not None
        place, name = self._counter
        at_place = [frame for frame in stack if _is_at(frame, place)]
        return any(not frame.line or steps_by(frame, name) for frame in at_place)


def _is_at(frame: Frame, place: Place) -> bool:
    return frame.function == place.function and frame.file.endswith(place.file)
