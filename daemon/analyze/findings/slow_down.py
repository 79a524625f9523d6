"""Rule: steps take longer and longer as the run goes on."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.certainty.confidence import CONFIDENCE_95
from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import WARNING, Evidence, Finding, Measure
from profd.daemon.analyze.findings.wording import at, percent
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.shares import phase_shares
from profd.daemon.analyze.steps.steps import COUNT_SERIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.rows import PointRow

_LEAST_NS = 90 * SECOND_NS
# Counts are read seldom where that is dear: every ten seconds and more.
_LEAST_PACES = 3
_SLOWER = 1.1


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


class _Third(msgspec.Struct, frozen=True):
    """How long steps took in a third of the run, in seconds, with half of the 95 % interval of the mean."""

    mean: float
    around: float


class _Course(msgspec.Struct, frozen=True):
    """The first and the last third, and how long the very first step took at the least; 0 or less: nobody knows."""

    early: _Third
    late: _Third
    first_s: float


def find(case: Case) -> Finding | None:
    """Return the finding where steps of the last third surely take longer than those of the first."""
    course = _course(case)
    if course is None:
        return None
    early, late = course.early, course.late
    ratio = late.mean / early.mean
    around = ratio * math.hypot(early.around / early.mean, late.around / late.mean)
    if ratio - around < _SLOWER:
        return None
    phase = _grown(case, ratio)
    line = case.line(phase)
    last = _selection(case, 2)
    return Finding(
        rule="slow-down",
        severity=WARNING,
        label="slower and slower",
        title=f"slower and slower: steps take {percent(ratio - 1)} longer than at first, "
        f"most of it in {phase}{at(line)}",
        cause="Something grows with the steps: a list that is gone through, a graph that is kept, a table, a file.",
        remedy=f"See what {phase} does more of now than in the first third{at(line)}: profd diff compares two ranges.",
        gain_bound=(late.mean + late.around) / course.first_s if course.first_s > 0 else None,
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


def _course(case: Case) -> _Course | None:
    """Return the course of the steps' durations; None where too little is known."""
    if case.to_ns - case.from_ns < _LEAST_NS:
        return None
    for row in case.trainers:
        series = case.reader.find_series(COUNT_SERIES, row.id)
        points = case.reader.points(series.id, case.from_ns, case.to_ns) if series else []
        first, second, last = (_paces(points, *_bounds(case, third)) for third in range(3))
        if min(len(first), len(last)) >= _LEAST_PACES:
            paces = [*first, *second, *last]
            around_line = _spread_around_line(paces)
            early = _third(first, around_line)
            return _Course(early, _third(last, around_line), min(_first_s(first), early.mean - early.around))
    return None


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


def _third(paces: Sequence[_Pace], around_line: float) -> _Third:
    """Return a third of the run; what its paces are apart for is chance, or part of a course that goes on elsewhere."""
    # Counts may lie closely at first, and far apart later.
    mean = math.fsum(pace.length_s for pace in paces) / math.fsum(pace.steps for pace in paces)
    scatter = _student_95(len(paces) - 1) * statistics.stdev(pace.step_s for pace in paces)
    return _Third(mean, min(scatter, around_line) / math.sqrt(len(paces)))


def _first_s(paces: Sequence[_Pace]) -> float:
    """Return how long the very first step took at the least, 95 times in 100, by the paces of the first third.

    What grows with the number of steps has grown within that third already.
    """
    numbers, steps_s = [pace.middle for pace in paces], [pace.step_s for pace in paces]
    if len(set(numbers)) < 2:  # a counter that begins anew, read at the same place each time
        return 0.0
    slope, height = statistics.linear_regression(numbers, steps_s)
    squares = math.fsum(
        (took_s - height - slope * number) ** 2 for number, took_s in zip(numbers, steps_s, strict=True)
    )
    degrees, mean = len(paces) - 2, statistics.fmean(numbers)
    spread = math.fsum((number - mean) ** 2 for number in numbers)
    error = math.sqrt(squares / degrees * (1 / len(paces) + mean**2 / spread))
    return height - _student_95(degrees) * error


def _spread_around_line(paces: Sequence[_Pace]) -> float:
    """Return how far, 95 times in 100, a pace lies from the line through all of them."""
    slope, height = statistics.linear_regression([pace.at_s for pace in paces], [pace.step_s for pace in paces])
    squares = math.fsum((pace.step_s - height - slope * pace.at_s) ** 2 for pace in paces)
    degrees = len(paces) - 2
    return _student_95(degrees) * math.sqrt(squares / degrees)


def _student_95(degrees: int) -> float:
    """Return how many standard errors a 95 % interval reaches each way: more where few values tell how they vary.

    Student's quantile in powers of 1 / degrees (Cornish and Fisher), 3 % too small for two degrees, exact for many.
    """
    z = CONFIDENCE_95
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def _grown(case: Case, ratio: float) -> str:
    """Return the phase that takes most longer a step than at first."""
    early, late = _phases(case, 0), _phases(case, 2)
    return max(late, key=lambda phase: ratio * late[phase] - early.get(phase, 0.0), default="other")


def _phases(case: Case, third: int) -> Mapping[str, float]:
    return phase_shares(case.profile_on(_selection(case, third)), case.phases)


def _selection(case: Case, third: int) -> Selection:
    from_ns, to_ns = _bounds(case, third)
    return msgspec.structs.replace(case.selection, from_ns=from_ns, to_ns=to_ns)


def _bounds(case: Case, third: int) -> tuple[int, int]:
    length_ns = case.to_ns - case.from_ns
    return case.from_ns + length_ns * third // 3, case.from_ns + length_ns * (third + 1) // 3
