"""Rules on the course of a run: a slow start, and steps that get slower."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.confidence import student_95
from profd.daemon.analyze.phases import OTHER
from profd.daemon.analyze.profile import phase_shares
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import counts_of
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.context import MOST, FindingContext
from profd.daemon.findings.finding import INFO, WARNING, Finding, Measure
from profd.daemon.findings.shares import Share
from profd.daemon.findings.texts import at, place, table
from profd.daemon.store.rows import PointRow
from profd.daemon.timerange import TimeRange
from profd.daemon.units import duration, percent

_LEAST_NS = 90 * SECOND_NS
# A pace takes five seconds and more: in less, a step or two make too much of a difference.
_PACE_NS = 5 * SECOND_NS
# With fewer in a third, a line through all paces decides, twice as many, which have to span half of
# the run.
_LEAST_PACES = 3
_SLOWER = 1.1
# Early counts show how long the first step took at the machine's pace of that minute: in four runs
# of one loop the first steps took 1.7 to 2.4 ms, and 1.4 to 2.1 with nothing that grows. So more is
# allowed for than what a cause costs the rest.
_INDIRECT = 0.5
# The share of the growth that the phases named by it went through: what is left may be chance.
_NEARLY_ALL = 0.8


class _Pace(NamedTuple):
    """How many steps were made between two counts, in what time, and around which moment."""

    at_ns: int
    number: float
    steps: float
    length_s: float

    @property
    def step_s(self) -> float:
        return self.length_s / self.steps


class _Estimate(NamedTuple):
    """How long steps took in a part of the run, in s; ``around`` is half of its 95 % interval."""

    mean: float
    around: float


class _Course(NamedTuple):
    """The length of steps early, late, on average, and of the very first one at least.

    ``first_s`` is 0 or less if unknown.
    """

    early: _Estimate
    late: _Estimate
    mean_s: float
    first_s: float


class _PaceLine:
    """The straight line nearest to at least three paces, by when or after how many steps."""

    def __init__(self, places: Sequence[float], paces: Sequence[_Pace]) -> None:
        values = [pace.step_s for pace in paces]
        self._slope, self._height = statistics.linear_regression(places, values)
        self._degrees, self._middle = len(places) - 2, statistics.fmean(places)
        self._spread = math.fsum((place - self._middle) ** 2 for place in places)
        off = (
            value - self._height - self._slope * place
            for place, value in zip(places, values, strict=True)
        )
        self.around = student_95(self._degrees) * math.sqrt(
            math.fsum(one**2 for one in off) / self._degrees
        )
        """How far, 95 times in 100, a value lies from it."""
        self.first, self.last = self.at(places[0]), self.at(places[-1])

    def at(self, place: float) -> _Estimate:
        share = 1 / (self._degrees + 2) + (place - self._middle) ** 2 / self._spread
        return _Estimate(self._height + self._slope * place, self.around * math.sqrt(share))


def slow_down(context: FindingContext) -> Finding | None:
    if context.time.length_ns < _LEAST_NS:
        return None
    course = next(filter(None, (_course(context, row.id) for row in context.trainers)), None)
    if course is None:
        return None
    early, late = course.early, course.late
    ratio = late.mean / early.mean
    around = ratio * math.hypot(early.around / early.mean, late.around / late.mean)
    if ratio - around < _SLOWER:
        return None
    measures = (
        Measure("longer a step", ratio, "times", ratio - around, ratio + around),
        Measure("a step at first", early.mean, "s"),
        Measure("a step at last", late.mean, "s"),
    )
    longer = percent(ratio - 1)
    last = _third(context, 2)
    lacked, lacks = (
        FindingContext(context.reader, third, context.phases).lacking
        for third in (_third(context, 0), last)
    )
    if ratio * lacks - lacked >= MOST * (ratio - 1):
        return context.finding(
            "slow-down-cores",
            *measures,
            severity=WARNING,
            longer=longer,
            lacked=percent(lacked),
            lacks=percent(lacks),
        )
    grown = _grown(context, ratio)
    phase = grown[0]
    line = context.line(phase)
    gain = None
    if course.first_s > 0:
        # Steps took longer than the very first one; all that has grown is a limit, too.
        lost = max(1 - course.first_s / course.mean_s, 0.0)
        limit = context.bound(context.share(*grown), indirect=_INDIRECT)
        gain = context.bound(Share(lost, lost, lost), limit, indirect=_INDIRECT)
    return context.finding(
        "slow-down",
        *measures,
        severity=WARNING,
        gain=gain,
        line=lambda: line,
        selection=msgspec.structs.replace(last, phase=phase),
        longer=longer,
        # What no rule knows has no name that says anything; its line does.
        where=f"at {place(line)}" if line and phase == OTHER else f"in {phase}{at(line)}",
    )


def _course(context: FindingContext, process: int) -> _Course | None:
    """Return the course of a process's steps; None if too little is known of it."""
    points: list[PointRow] = []  # those that are far enough apart
    for point in counts_of(context.reader, process, context.selection).longest:
        if not points or point.at_ns - points[-1].at_ns >= _PACE_NS:
            points.append(point)
    paces = [
        _pace(before, after)
        for before, after in itertools.pairwise(points)
        if after.value > before.value
    ]
    if len(paces) < 2 * _LEAST_PACES:
        return None
    line = _line_through(paces)
    first, _, last = (
        [pace for pace in paces if third.holds(pace.at_ns)] for third in context.time.cut(3)
    )
    if min(len(first), len(last)) >= _LEAST_PACES:
        early, late, begin = _mean_pace(first, line.around), _mean_pace(last, line.around), first
    elif 2 * (paces[-1].at_ns - paces[0].at_ns) >= context.time.length_ns:
        early, late, begin = line.first, line.last, paces
    else:
        return None
    surely_s = early.mean - early.around
    # The pace from the first step to the first count, if the counter began at 0 then.
    begun = _pace(PointRow(context.time.from_ns, 0.0), points[0])
    first_s = min(_first_s(begin, begun), surely_s)
    return _Course(early, late, _mean_s(paces), first_s) if surely_s > 0 else None


def _pace(before: PointRow, after: PointRow) -> _Pace:
    return _Pace(
        (before.at_ns + after.at_ns) // 2,
        (before.value + after.value) / 2,
        after.value - before.value,
        (after.at_ns - before.at_ns) / SECOND_NS,
    )


def _line_through(paces: Sequence[_Pace]) -> _PaceLine:
    """Return the line that fits paces best: over time, or over steps if each slows the next."""
    by_time = _PaceLine([pace.at_ns / SECOND_NS for pace in paces], paces)
    if any(after.number <= before.number for before, after in itertools.pairwise(paces)):
        return by_time  # a counter that begins anew
    return min(by_time, _over_steps(paces), key=lambda line: line.around)


def _over_steps(paces: Sequence[_Pace]) -> _PaceLine:
    return _PaceLine([pace.number for pace in paces], paces)


def _mean_s(paces: Sequence[_Pace]) -> float:
    return math.fsum(pace.length_s for pace in paces) / math.fsum(pace.steps for pace in paces)


def _mean_pace(paces: Sequence[_Pace], around_line: float) -> _Estimate:
    """Return the pace of a third of the run.

    Its paces differ by chance, or by a course that goes on in the rest of the run.
    """
    scatter = student_95(len(paces) - 1) * statistics.stdev(pace.step_s for pace in paces)
    # Counts may lie closely at first, and far apart later.
    return _Estimate(_mean_s(paces), min(scatter, around_line) / math.sqrt(len(paces)))


def _first_s(paces: Sequence[_Pace], begun: _Pace) -> float:
    """Return how long the very first step took at least, by early paces, 95 times in 100.

    What grows with the number of steps has already grown within the first third. The pace since the
    counter ``begun`` says most, if the others agree with it: a counter may have begun elsewhere.
    """
    # A counter may begin anew, and be read at the same step each time.
    if len({pace.number for pace in paces}) < 2:
        return 0.0
    every, guess = [*paces], _over_steps(paces).at(begun.number)
    if min(begun.steps, begun.length_s) > 0 and abs(begun.step_s - guess.mean) <= guess.around:
        every.append(begun)
    first = _over_steps(every).at(0.0)
    return first.mean - first.around


def _grown(context: FindingContext, ratio: float) -> Sequence[str]:
    """Return the phases with nearly all of the growth of steps, the one with most of it first.

    The growth is what steps take longer than at first.
    """
    early, late = (
        phase_shares(context.profile_on(_third(context, third)), context.phases) for third in (0, 2)
    )
    longer = {
        phase: max(ratio * share - early.get(phase, 0.0), 0.0) for phase, share in late.items()
    }
    found, left = [], _NEARLY_ALL * sum(longer.values())
    for phase in sorted(longer, key=longer.__getitem__, reverse=True):
        if left > 0:
            found.append(phase)
            left -= longer[phase]
    return found or [OTHER]


def _third(context: FindingContext, number: int) -> Selection:
    return context.selection.during(context.time.cut(3)[number])


_LONG_S, _VERY_LONG_S = 20.0, 60.0


def slow_start(context: FindingContext) -> Finding | None:
    info = context.reader.info
    if context.whole.from_ns is not None or info.mode != "launched" or not context.is_training:
        return None
    start = TimeRange(info.started_ns, context.time.from_ns)
    start_s = start.length_ns / SECOND_NS
    part = start.length_ns / (context.time.to_ns - info.started_ns)
    severity = table().severity("slow-start", part)
    if severity is None or start_s < _LONG_S:
        return None
    selection = context.selection.during(start)
    return context.finding(
        "slow-start",
        Measure("until the first step", start_s, "s"),
        Measure("of the run", part),
        severity=severity if start_s >= _VERY_LONG_S else INFO,
        line=lambda: context.heaviest_line(profile=context.profile_on(selection)),
        selection=selection,
        took=duration(start_s),
    )
