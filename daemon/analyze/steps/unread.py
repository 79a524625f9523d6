"""The steps that a run made before its counter was first read, and after it was last read.

They are those of the counts nearest to them, at as many a second of the time that the loop was stepping. A counter
that starts over with each epoch does not tell, where it is first read, how many epochs there were before: visits of
the phases of a step do, where they can be counted.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.rows import PointRow

# Counts tell how fast the loop stepped beyond the first or last of them, and how much that varies.
_NEAREST = 7
_NEAREST_NS = 60 * SECOND_NS
_LEAST_COUNTS = 3
_EARLY = 4
_LEAST_SPREAD = 0.02
_SPREAD_UNKNOWN = 0.15
# So many standard deviations of a few paces is another one hardly ever off.
_SURE = 2.5
# By how much more a loop may have made before a count than at the pace after it: so far its counter is believed.
_FASTER = 1.5
_MISCOUNTED = 0.2


class SteppingTime(Protocol):
    """Knows when a loop was stepping."""

    def stepping_ns(self, from_ns: int, to_ns: int) -> float:
        """Return how much of a range of time it was."""
        ...


LoopTimes = Callable[[tuple[int, int], Sequence[PointRow]], SteppingTime]
"""Gives the time of a loop in a range, by the counts in it."""


class Unread(NamedTuple):
    """Steps made while nobody read, give or take ``error``."""

    steps: float
    error: float


NONE = Unread(0.0, 0.0)


class Visits(NamedTuple):
    """How often a phase of a step was visited before the first count, and while ``counted`` steps were made after it.

    ``error_share`` is by what share of it the first one may be wrong.
    """

    before: float
    after: float
    error_share: float
    counted: float

    def made(self) -> Unread:
        """Return the steps before the first count: a phase may be visited several times in each, or seen less often."""
        steps = self.before * self.counted / self.after
        return Unread(steps, self.error_share * steps)


def made_after(counts: Sequence[PointRow], end_ns: int, times: LoopTimes) -> Unread:
    """Return the steps from the last count to the end, at the pace of the last ones."""
    last = counts[-1]
    if end_ns <= last.at_ns:
        return NONE
    late = nearest(counts[::-1])[::-1]
    return _at_pace(late, times((late[0].at_ns, end_ns), late), (last.at_ns, end_ns))


def made_before(
    counts: Sequence[PointRow], begin_ns: int, visits: Visits | None, times: LoopTimes, *, is_launched: bool
) -> Unread:
    """Return the steps from a run's beginning to the first count: what that says, where it can count from a launch.

    Else, and where visits tell of far more: by these, or at the pace of the first counts.
    """
    first = counts[0]
    if first.at_ns <= begin_ns:
        return NONE
    visited = visits.made() if visits else None
    least = visited.steps - max(visited.error, _MISCOUNTED * visited.steps) if visited else 0.0
    if is_launched and _can_have_made(counts, begin_ns) and first.value >= least:
        return Unread(first.value, 0.0)
    if visited is not None:
        return visited
    early = nearest(counts)
    loop = times((begin_ns, early[-1].at_ns), early)
    return _at_pace(early, loop, (begin_ns, first.at_ns))


def _can_have_made(counts: Sequence[PointRow], launched_ns: int) -> bool:
    """Say whether all that the first count says can have been made since the launch.

    By the pace of the first counts: a loop that slows down made more steps before than its mean tells.
    """
    first = counts[0]
    pace = max(_pace(first, counts[min(_EARLY, len(counts)) - 1]), _pace(first, counts[-1]))
    return 0 <= first.value <= 1 + _FASTER * pace * (first.at_ns - launched_ns) / SECOND_NS


def nearest(counts: Sequence[PointRow]) -> Sequence[PointRow]:
    """Return those counts that are near the first one."""
    near = [count for count in counts[:_NEAREST] if abs(count.at_ns - counts[0].at_ns) <= _NEAREST_NS]
    return near if len(near) >= _LEAST_COUNTS else counts[:_LEAST_COUNTS]


def _at_pace(counts: Sequence[PointRow], loop: SteppingTime, range_ns: tuple[int, int]) -> Unread:
    """Return the steps in a range of time at as many a second of stepping as between some counts."""
    took_ns = [loop.stepping_ns(before.at_ns, after.at_ns) for before, after in itertools.pairwise(counts)]
    paces = [
        (after.value - before.value) / length_ns
        for (before, after), length_ns in zip(itertools.pairwise(counts), took_ns, strict=True)
        if length_ns
    ]
    if not paces:
        return NONE
    pace = (counts[-1].value - counts[0].value) / sum(took_ns)
    spread = max(_SURE * statistics.stdev(paces), _LEAST_SPREAD * pace) if len(paces) > 1 else _SPREAD_UNKNOWN * pace
    stepping_ns = loop.stepping_ns(*range_ns)
    return Unread(pace * stepping_ns, spread * stepping_ns)


def _pace(before: PointRow, after: PointRow) -> float:
    """Return the steps a second between two counts."""
    return (after.value - before.value) * SECOND_NS / (after.at_ns - before.at_ns)
