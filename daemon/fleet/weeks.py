"""What got slower since last week: the steps of each job, and the phases of those whose steps did.

Runs differ by chance; those of the nodes of one execution count as one. Where one run lasts from one week to the other,
its days are compared. Where neither is there, nothing is said.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from profd.daemon.compare.blocks import mean_of
from profd.daemon.fleet.answers import JobPace, PhaseChange, Slower, WeekPace
from profd.daemon.fleet.paces import Gap, Pace, RunPaces, by_job, executions, gap, mean_pace

RUNS, DAYS = "runs", "days of one run"
_FEWEST_DAYS = 3


class Pair(NamedTuple):
    """A job's paces in the last week and in an earlier one; ``basis`` is what each of them is of."""

    job: str
    now: Sequence[Pace]
    before: Sequence[Pace]
    weeks_ago: int
    basis: str

    def gap(self, measure: Callable[[Pace], float]) -> Gap | None:
        now, before = ([measure(one) for one in paces] for paces in (self.now, self.before))
        if self.basis == RUNS:
            return gap(now, before)
        # Neighboring days are alike.
        one, other = mean_of(now), mean_of(before)
        return Gap(one.value - other.value, math.hypot(one.error, other.error), len(now) + len(before) - 2)

    def means(self, measure: Callable[[Pace], float]) -> tuple[float, float]:
        return statistics.fmean(map(measure, self.before)), statistics.fmean(map(measure, self.now))


def find_slower(paces: Iterable[RunPaces], least: float) -> tuple[list[Slower], list[JobPace]]:
    """Return the jobs whose steps surely take longer, by ``least`` or more, and the paces of all jobs by the week.

    Those that got slowest first.
    """
    jobs = by_job(paces)
    pairs = {job: _pair(job, runs) for job, runs in jobs.items()}
    compared = [pair for pair in pairs.values() if isinstance(pair, Pair)]
    slower = [one for pair in compared if (one := _judged(pair, len(compared), least)) is not None]
    slower.sort(key=lambda one: (-one.times, one.job))
    job_paces = []
    for job, runs in jobs.items():
        weeks = []
        for week in sorted({week for run in runs for week in run.weeks}, reverse=True):
            of_week = _paces(runs, week)
            weeks.append(WeekPace(week, statistics.fmean(pace.step_s for pace in of_week), len(of_week)))
        pair = pairs[job]
        job_paces.append(JobPace(job, tuple(weeks), pair if isinstance(pair, str) else None))
    return slower, job_paces


def _pair(job: str, runs: Sequence[RunPaces]) -> Pair | str:
    """Return the paces of a job to compare, or why there are none."""
    earlier = [week for run in runs for week in run.weeks if week > 0]
    if not any(0 in run.weeks for run in runs):
        return "it did not run in the last seven days"
    if not earlier:
        return "it did not run before the last seven days"
    week = min(earlier)
    now, before = _paces(runs, 0), _paces(runs, week)
    if min(len(now), len(before)) >= 2:
        return Pair(job, now, before, week, RUNS)
    for run in runs:
        now, before = ([pace for day in run.days(one) if (pace := run.pace([day]))] for one in (0, week))
        if min(len(now), len(before)) >= _FEWEST_DAYS:
            return Pair(job, now, before, week, DAYS)
    return "one run a week tells nothing of how much runs differ by chance"


def _paces(runs: Iterable[RunPaces], week: int) -> list[Pace]:
    """Return the paces of a week, one for each execution however many nodes it ran on."""
    found = [[run.pace(run.days(week)) for run in together] for together in executions(runs)]
    known = [[pace for pace in paces if pace is not None] for paces in found]
    return [mean_pace(paces) for paces in known if paces]


def _judged(pair: Pair, comparisons: int, least: float) -> Slower | None:
    """Return a job as one that got slower; None where that may be chance, or is little."""
    found = pair.gap(lambda pace: math.log(pace.step_s))
    if found is None or found.value < math.log1p(least):
        return None
    low, high = found.bounds(comparisons)
    if low <= 0:
        return None
    before_s, now_s = pair.means(lambda pace: pace.step_s)
    return Slower(
        job=pair.job,
        before_s=before_s,
        now_s=now_s,
        times=math.exp(found.value),
        low=math.exp(low),
        high=math.exp(high),
        weeks_ago=pair.weeks_ago,
        before=len(pair.before),
        now=len(pair.now),
        basis=pair.basis,
        phases=tuple(_phases(pair, least * before_s)),
    )


def _phases(pair: Pair, least_s: float) -> list[PhaseChange]:
    """Return the phases that surely take more of a step, those that grew most first."""
    names = sorted({phase for pace in (*pair.now, *pair.before) for phase in pace.phases})
    found = []
    for phase in names:

        def in_phase(pace: Pace, phase: str = phase) -> float:
            return pace.phases.get(phase, 0.0)

        difference = pair.gap(in_phase)
        if difference is not None and difference.value >= least_s:
            low, high = difference.bounds(len(names))
            if low > 0:
                found.append(PhaseChange(phase, *pair.means(in_phase), low, high))
    return sorted(found, key=lambda one: one.before_s - one.now_s)
