"""Rule: steps take longer and longer as the run goes on."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

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
_LEAST_PACES = 4
_SLOWER = 1.1


class _Third(msgspec.Struct, frozen=True):
    """How long steps took in a third of the run, in seconds, with the standard error of the mean."""

    mean: float
    error: float


def find(case: Case) -> Finding | None:
    """Return the finding where steps of the last third surely take longer than those of the first."""
    thirds = _thirds(case)
    if thirds is None:
        return None
    early, late = thirds
    ratio = late.mean / early.mean
    around = CONFIDENCE_95 * ratio * math.hypot(early.error / early.mean, late.error / late.mean)
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
        gain_bound=ratio + around,
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


def _thirds(case: Case) -> tuple[_Third, _Third] | None:
    """Return the first and the last third of the steps' durations; None where too little is known."""
    if case.to_ns - case.from_ns < _LEAST_NS:
        return None
    for row in case.trainers:
        series = case.reader.find_series(COUNT_SERIES, row.id)
        points = case.reader.points(series.id, case.from_ns, case.to_ns) if series else []
        first, _, last = (_durations(points, *_bounds(case, third)) for third in range(3))
        if min(len(first), len(last)) >= _LEAST_PACES:
            return _third(first), _third(last)
    return None


def _durations(points: Sequence[PointRow], from_ns: int, to_ns: int) -> list[float]:
    """Return how long a step took between counts that lie in [from_ns, to_ns)."""
    inside = [point for point in points if from_ns <= point.at_ns < to_ns]
    return [
        (after.at_ns - before.at_ns) / SECOND_NS / (after.value - before.value)
        for before, after in itertools.pairwise(inside)
        if after.value > before.value
    ]


def _third(durations: Sequence[float]) -> _Third:
    return _Third(statistics.fmean(durations), statistics.stdev(durations) / math.sqrt(len(durations)))


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
