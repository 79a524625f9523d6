"""Rules on the course of a run: a slow start, and steps that get slower."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.confidence import student_95
from profd.daemon.analyze.functions import phase_shares
from profd.daemon.analyze.phases import OTHER
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import COUNT_SERIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext, Share
from profd.daemon.findings.finding import INFO, WARNING, Evidence, Finding, Measure, at, place
from profd.daemon.store.rows import PointRow
from profd.daemon.units import duration, percent

_LEAST_NS = 90 * SECOND_NS
# A pace is that of five seconds and more: in less a step or two make too much of a difference.
_PACE_NS = 5 * SECOND_NS
_LEAST_PACES = 3
# Fewer in a third leave it to a line through those of the whole run, half of which they have to span.
_LEAST_PACES_OF_LINE = 6
_LEAST_SPAN = 0.5
_SLOWER = 1.1
# Early counts tell how long the first step took at the machine's pace of that minute: in four runs of one loop the
# first steps took 1.7 to 2.4 ms, and 1.4 to 2.1 with nothing that grows. So more is allowed for than what a cause costs
# the rest.
_INDIRECT = 0.5
# The share of the growth that the phases named by it went through: what is left may be chance.
_NEARLY_ALL = 0.8


class _Pace(NamedTuple):
    """How many steps went by between two counts, since when and in what time, and which step was in their middle."""

    at_s: float
    length_s: float
    steps: float
    middle: float

    @property
    def step_s(self) -> float:
        """How long a step took."""
        return self.length_s / self.steps

    @property
    def middle_s(self) -> float:
        """When half of its time had gone by."""
        return self.at_s + self.length_s / 2


class _Part(msgspec.Struct, frozen=True):
    """How long steps took in a part of the run, in seconds, with half of the 95 % interval of the mean."""

    mean: float
    around: float


class _Course(msgspec.Struct, frozen=True):
    """An early and a late part, and how long a step took in all and the very first at the least; 0 or less: unknown."""

    early: _Part
    late: _Part
    mean_s: float
    first_s: float


class _Line:
    """The straight line that lies nearest to values, at least three at two places at least."""

    def __init__(self, places: Sequence[float], values: Sequence[float]) -> None:
        self._places = places
        self._slope, self._height = statistics.linear_regression(places, values)
        self._degrees, self._middle = len(places) - 2, statistics.fmean(places)
        self._spread = math.fsum((place - self._middle) ** 2 for place in places)
        squares = math.fsum(
            (value - self._height - self._slope * place) ** 2 for place, value in zip(places, values, strict=True)
        )
        self._scatter = math.sqrt(squares / self._degrees)

    @property
    def around(self) -> float:
        """How far, 95 times in 100, a value lies from it."""
        return student_95(self._degrees) * self._scatter

    @property
    def first(self) -> _Part:
        """Its height at the first place."""
        return self.at(self._places[0])

    @property
    def last(self) -> _Part:
        """Its height at the last place."""
        return self.at(self._places[-1])

    def at(self, place: float) -> _Part:
        """Return its height at a place."""
        share = 1 / (self._degrees + 2) + (place - self._middle) ** 2 / self._spread
        return _Part(self._height + self._slope * place, self.around * math.sqrt(share))


def slow_down(case: FindingContext) -> Finding | None:
    """Return the finding where steps of the last third surely take longer than those of the first."""
    course = _course(case)
    if course is None:
        return None
    early, late = course.early, course.late
    ratio = late.mean / early.mean
    around = ratio * math.hypot(early.around / early.mean, late.around / late.mean)
    if ratio - around < _SLOWER:
        return None
    grown = _grown(case, ratio)
    phase = grown[0]
    line = case.line(phase)
    # What no rule knows has no name that says anything; its line does.
    where = f"at {place(line)}" if line and phase == OTHER else f"in {phase}{at(line)}"
    last = _selection(case, 2)
    return Finding(
        rule="slow-down",
        severity=WARNING,
        label="slower and slower",
        title=f"slower and slower: steps take {percent(ratio - 1)} longer than at first, most of it {where}",
        cause="Something grows with the steps: a list that is gone through, a graph that is kept, a table, a file.",
        remedy=f"See what takes longer {where} now than in the first third: profd diff compares two ranges.",
        gain_bound=_gain_bound(case, course, grown),
        evidence=Evidence(
            (
                Measure("longer a step", ratio, "times", ratio - around, ratio + around),
                Measure("a step at first", early.mean, "s"),
                Measure("a step at last", late.mean, "s"),
            ),
            last.from_ns or case.from_ns,
            case.to_ns,
            msgspec.structs.replace(last, phase=phase),
            line,
            (COUNT_SERIES,),
        ),
        page="slow-down",
    )


def _course(case: FindingContext) -> _Course | None:
    """Return the course of the steps' durations; None where too little is known."""
    if case.to_ns - case.from_ns < _LEAST_NS:
        return None
    least_span_s = _LEAST_SPAN * (case.to_ns - case.from_ns) / SECOND_NS
    for row in case.trainers:
        series = case.reader.find_series(COUNT_SERIES, row.id)
        points = _apart(case.reader.points(series.id, case.from_ns, case.to_ns)) if series else []
        first, second, last = (_paces(points, *_bounds(case, third)) for third in range(3))
        paces = [*first, *second, *last]
        if min(len(first), len(last)) >= _LEAST_PACES:
            around_line = _line_through(paces).around
            early, late = _third(first, around_line), _third(last, around_line)
            return _course_of(early, late, _mean_s(paces), _first_s(first, _begun(points, case.from_ns)))
        if len(paces) >= _LEAST_PACES_OF_LINE and paces[-1].middle_s - paces[0].middle_s >= least_span_s:
            line = _line_through(paces)
            early, late = line.first, line.last
            return _course_of(early, late, _mean_s(paces), _first_s(paces, _begun(points, case.from_ns)))
    return None


def _apart(points: Sequence[PointRow]) -> list[PointRow]:
    """Return the first of some counts, and each that is long enough after the one before."""
    found: list[PointRow] = []
    for point in points:
        if not found or point.at_ns - found[-1].at_ns >= _PACE_NS:
            found.append(point)
    return found


def _line_through(paces: Sequence[_Pace]) -> _Line:
    """Return the line that paces lie on best: over the time, or over the steps where each makes the next one longer."""
    step_s, numbers = [pace.step_s for pace in paces], [pace.middle for pace in paces]
    by_time = _Line([pace.middle_s for pace in paces], step_s)
    if any(after <= before for before, after in itertools.pairwise(numbers)):  # a counter that begins anew
        return by_time
    return min(by_time, _Line(numbers, step_s), key=lambda line: line.around)


def _course_of(early: _Part, late: _Part, mean_s: float, first_s: float) -> _Course | None:
    """Return a course, None where steps may have taken no time early on."""
    surely_s = early.mean - early.around
    return _Course(early, late, mean_s, min(first_s, surely_s)) if surely_s > 0 else None


def _gain_bound(case: FindingContext, course: _Course, grown: Sequence[str]) -> float | None:
    """Return the bound on the gain: by what steps took beyond the first, and by all of what has grown."""
    if course.first_s <= 0:
        return None
    return bound(case, _lost(course), bound(case, case.share(*grown), indirect=_INDIRECT), indirect=_INDIRECT)


def _lost(course: _Course) -> Share:
    """Return the share of the time that steps took beyond the very first one."""
    lost = max(1 - course.first_s / course.mean_s, 0.0)
    return Share(lost, lost, lost, 0)


def _mean_s(paces: Sequence[_Pace]) -> float:
    """Return how long a step took in all of them."""
    return math.fsum(pace.length_s for pace in paces) / math.fsum(pace.steps for pace in paces)


def _begun(points: Sequence[PointRow], from_ns: int) -> _Pace | None:
    """Return the pace from the first step to the first count, if the counter began at 0 then."""
    if not points or points[0].value <= 0 or points[0].at_ns <= from_ns:
        return None
    took_s, steps = (points[0].at_ns - from_ns) / SECOND_NS, points[0].value
    return _Pace(from_ns / SECOND_NS, took_s, steps, steps / 2)


def _paces(points: Sequence[PointRow], from_ns: int, to_ns: int) -> list[_Pace]:
    """Return the paces from one count to the next whose middle lies in [from_ns, to_ns)."""
    return [
        _Pace(
            before.at_ns / SECOND_NS,
            (after.at_ns - before.at_ns) / SECOND_NS,
            after.value - before.value,
            (before.value + after.value) / 2,
        )
        for before, after in itertools.pairwise(points)
        if after.value > before.value and from_ns <= (before.at_ns + after.at_ns) // 2 < to_ns
    ]


def _third(paces: Sequence[_Pace], around_line: float) -> _Part:
    """Return a third of the run; what its paces are apart for is chance, or part of a course that goes on elsewhere."""
    scatter = student_95(len(paces) - 1) * statistics.stdev(pace.step_s for pace in paces)
    # Counts may lie closely at first, and far apart later.
    return _Part(_mean_s(paces), min(scatter, around_line) / math.sqrt(len(paces)))


def _first_s(paces: Sequence[_Pace], begun: _Pace | None = None) -> float:
    """Return how long the very first step took at the least, 95 times in 100, by paces that begin early.

    What grows with the number of steps has grown within the first third already. The pace since the counter ``begun``
    says most of all, where the others agree that it may be one: a counter may have begun elsewhere.
    """
    numbers = [pace.middle for pace in paces]
    if len(set(numbers)) < 2:  # a counter that begins anew, read at the same place each time
        return 0.0
    line = _Line(numbers, [pace.step_s for pace in paces])
    if begun is not None and abs(begun.step_s - line.at(begun.middle).mean) <= line.at(begun.middle).around:
        line = _Line([begun.middle, *numbers], [begun.step_s, *(pace.step_s for pace in paces)])
    first = line.at(0.0)
    return first.mean - first.around


def _grown(case: FindingContext, ratio: float) -> Sequence[str]:
    """Return the phases that nearly all of what steps take longer than at first went to, first that which most did."""
    early, late = _phases(case, 0), _phases(case, 2)
    longer = {phase: max(ratio * share - early.get(phase, 0.0), 0.0) for phase, share in late.items()}
    found, left = [], _NEARLY_ALL * sum(longer.values())
    for phase in sorted(longer, key=longer.__getitem__, reverse=True):
        if left > 0:
            found.append(phase)
            left -= longer[phase]
    return found or [OTHER]


def _phases(case: FindingContext, third: int) -> Mapping[str, float]:
    return phase_shares(case.profile_on(_selection(case, third)), case.phases)


def _selection(case: FindingContext, third: int) -> Selection:
    from_ns, to_ns = _bounds(case, third)
    return msgspec.structs.replace(case.selection, from_ns=from_ns, to_ns=to_ns)


def _bounds(case: FindingContext, third: int) -> tuple[int, int]:
    length_ns = case.to_ns - case.from_ns
    return case.from_ns + length_ns * third // 3, case.from_ns + length_ns * (third + 1) // 3


_LONG_S, _VERY_LONG_S = 20.0, 60.0
_PART, _LARGE_PART = 0.1, 0.25


def slow_start(case: FindingContext) -> Finding | None:
    """Return the finding where the start of a run took long, by itself and as a part of the run."""
    info = case.reader.info
    if case.whole.from_ns is not None or info.mode != "launched" or not case.is_training:
        return None
    start_s = (case.from_ns - info.started_ns) / SECOND_NS
    part = start_s / ((case.to_ns - info.started_ns) / SECOND_NS)
    if start_s < _LONG_S or part < _PART:
        return None
    selection = msgspec.structs.replace(case.selection, from_ns=info.started_ns, to_ns=case.from_ns)
    line = case.heaviest_line(case.profile_on(selection))
    return Finding(
        rule="slow-start",
        severity=WARNING if start_s >= _VERY_LONG_S and part >= _LARGE_PART else INFO,
        label="slow start",
        title=f"slow start: {duration(start_s)} until the first step, {percent(part)} of the run{at(line)}",
        cause="Modules are imported, data is read and the model is built before anything is trained.",
        remedy=f"See what takes that long{at(line)}: keep what is computed from run to run, read data when it is "
        "needed. A longer run is slowed less by it.",
        gain_bound=None,
        evidence=Evidence(
            (Measure("until the first step", start_s, "s"), Measure("of the run", part)),
            info.started_ns,
            case.from_ns,
            selection,
            line,
        ),
        page="slow-start",
    )
