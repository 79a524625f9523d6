"""The steps that a run made before its counter was first read, and after it was last read.

They are those of the counts nearest to them, at as many a second of the time that the loop was stepping. A counter
that starts over with each epoch does not tell, where it is first read, how many epochs there were before: visits of
the phases of a step do, where they can be counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.rows import PointRow

# Counts tell how fast the loop stepped beyond the first or last of them, and how much that varies.
_NEAREST = 7
_NEAREST_NS = 60 * SECOND_NS
_LEAST_COUNTS = 3
_EARLY = 4
# A pace may change for good; the fewer were seen, the less is known of that.
_LEAST_SPREAD = 0.01
_SPREAD_UNKNOWN = 0.15
# By so many standard deviations of a few paces another one is hardly ever off.
_SURE = 2.5
# By how much more a loop may have made before a count than at the pace after it: so far its counter is believed.
_FASTER = 1.5
_MISCOUNTED = 0.2
_UNEVEN = 0.1


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
    """How often a phase of a step was visited while nobody read the counter, and while ``counted`` steps were made.

    ``error_share`` is by what share of it the first one may be wrong.
    """

    unread: float
    read: float
    error_share: float
    counted: float

    def made(self) -> Unread:
        """Return the steps while nobody read: a phase may be visited several times in each, or seen less often."""
        steps = self.unread * self.counted / self.read
        return Unread(steps, self.error_share * steps)


def made_after(counts: Sequence[PointRow], end_ns: int, visits: Visits | None, times: LoopTimes) -> Unread:
    """Return the steps from the last count to the end, by visits or at the pace of the last counts."""
    last = counts[-1]
    if end_ns <= last.at_ns:
        return NONE
    late = latest(counts)
    paced = _at_pace(late, times((late[0].at_ns, end_ns), late), (last.at_ns, end_ns))
    return _surer(paced, visits)


def made_between(last: PointRow, following: PointRow, end_ns: int) -> Unread:
    """Return the steps from one count up to a time before the next."""
    steps = (following.value - last.value) * (end_ns - last.at_ns) / (following.at_ns - last.at_ns)
    return Unread(steps, _UNEVEN * steps)


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
    if is_launched and _can_have_made(counts, begin_ns):
        return Unread(first.value, 0.0) if visited is None or first.value >= least else visited
    early = earliest(counts)
    return _surer(_at_pace(early, times((begin_ns, early[-1].at_ns), early), (begin_ns, first.at_ns)), visits)


def _surer(paced: Unread, visits: Visits | None) -> Unread:
    """Return the steps by their pace or by visits, whichever tells more exactly."""
    return min((paced, visits.made()), key=lambda one: one.error) if visits else paced


def _can_have_made(counts: Sequence[PointRow], launched_ns: int) -> bool:
    """Say whether all that the first count says can have been made since the launch.

    By the pace of the first counts: a loop that slows down made more steps before than its mean tells.
    """
    first = counts[0]
    pace = max(_pace(first, counts[min(_EARLY, len(counts)) - 1]), _pace(first, counts[-1]))
    return 0 <= first.value <= 1 + _FASTER * pace * (first.at_ns - launched_ns) / SECOND_NS


def earliest(counts: Sequence[PointRow]) -> Sequence[PointRow]:
    """Return the counts near the first one."""
    return counts[: _near([count.at_ns - counts[0].at_ns for count in counts[:_NEAREST]])]


def latest(counts: Sequence[PointRow]) -> Sequence[PointRow]:
    """Return the counts near the last one."""
    return counts[-_near([counts[-1].at_ns - count.at_ns for count in counts[: -_NEAREST - 1 : -1]]) :]


def _near(distances_ns: Sequence[int]) -> int:
    """Return how many counts are near the one at which distances begin."""
    return max(sum(distance_ns <= _NEAREST_NS for distance_ns in distances_ns), min(_LEAST_COUNTS, len(distances_ns)))


def _at_pace(counts: Sequence[PointRow], loop: SteppingTime, range_ns: tuple[int, int]) -> Unread:
    """Return the steps in a range of time at as many a second of stepping as between some counts.

    How much paces vary from one time to another says how much the pace of the range may differ: the less, the longer
    the times are, as what makes steps uneven evens out.
    """
    took_ns = [loop.stepping_ns(before.at_ns, after.at_ns) for before, after in itertools.pairwise(counts)]
    paces = [
        ((after.value - before.value) / length_ns, length_ns)
        for (before, after), length_ns in zip(itertools.pairwise(counts), took_ns, strict=True)
        if length_ns
    ]
    stepping_ns = loop.stepping_ns(*range_ns)
    if not paces or not stepping_ns:
        return NONE
    whole_ns = sum(length_ns for _, length_ns in paces)
    mean = sum(pace * length_ns for pace, length_ns in paces) / whole_ns
    # The counts of a short time are off by up to a step, however even the pace is.
    off = [(max(abs(pace - mean) - 1 / length_ns, 0.0), length_ns) for pace, length_ns in paces]
    uneven = sum(length_ns * each**2 for each, length_ns in off) / max(len(paces) - 1, 1)
    spread = _SURE * math.sqrt(uneven * (1 / stepping_ns + 1 / whole_ns))
    # As many times of one length would tell as much: short ones beside a long one say little.
    alike = whole_ns**2 / sum(length_ns**2 for _, length_ns in paces)
    least = (_LEAST_SPREAD + _SPREAD_UNKNOWN / alike) * mean
    return Unread(mean * stepping_ns, max(spread, least) * stepping_ns)


def _pace(before: PointRow, after: PointRow) -> float:
    """Return the steps a second between two counts."""
    return (after.value - before.value) * SECOND_NS / (after.at_ns - before.at_ns)
