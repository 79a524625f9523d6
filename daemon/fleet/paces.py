"""How long each run's steps take, slow nodes, and jobs that slowed since last week.

Runs differ by chance; those of the nodes of one execution count as one. If one run lasts from one
week to the other, its days are compared. Without several runs or days a job is not compared.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.analyze.phases import COLLECTIVE
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.blocks import mean_of
from profd.daemon.fleet.answers import JobPace, PhaseChange, Slower, SlowNode, WeekPace
from profd.daemon.fleet.reduction import Partial, RunPart, Spent, Stepped

WEEK_DAYS = 7


class DaysPace(msgspec.Struct, frozen=True):
    """Some days of a run: the seconds of a step, and the part of it that each phase takes."""

    step_s: float
    phases: Mapping[str, float]


class RunPaces:
    """A run by days."""

    def __init__(
        self, run: RunPart, steps: Mapping[int, Stepped], phases: Mapping[int, Mapping[str, Spent]]
    ) -> None:
        self.run, self._steps, self._phases = run, steps, phases

    @property
    def weeks(self) -> frozenset[int]:
        """The weeks that it made steps in; 0 is the last one."""
        return frozenset(day // WEEK_DAYS for day, one in self._steps.items() if one.microsteps)

    def days(self, week: int) -> list[int]:
        """Return the days of a week that it made steps in, in order of time."""
        found = (
            day for day, one in self._steps.items() if day // WEEK_DAYS == week and one.microsteps
        )
        return sorted(found, reverse=True)

    def pace(self, days: Collection[int]) -> DaysPace | None:
        """Return the pace over some of the days that it made steps in; None over no day."""
        if not days:
            return None
        microsteps = sum(self._steps[day].microsteps for day in days)
        step_s = sum(self._steps[day].duration_ns for day in days) / SECOND_NS * 1e6 / microsteps
        spent: defaultdict[str, int] = defaultdict(int)
        for day in days:
            for phase, one in self._phases.get(day, {}).items():
                spent[phase] += one.rank_ns
        whole = sum(spent.values())
        return DaysPace(
            step_s,
            {phase: step_s * spent[phase] / whole for phase in sorted(spent)} if whole else {},
        )


def take_paces(partial: Partial) -> list[RunPaces]:
    steps: defaultdict[str, dict[int, Stepped]] = defaultdict(dict)
    phases: defaultdict[str, defaultdict[int, dict[str, Spent]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for run_name, day, stepped in partial.steps:
        steps[run_name][day] = stepped
    for (run_name, day, phase), spent in partial.phases:
        phases[run_name][day][phase] = spent
    return [
        RunPaces(run, steps[run.run], phases[run.run]) for run in partial.runs if run.run in steps
    ]


def executions(runs: Iterable[RunPaces]) -> list[list[RunPaces]]:
    """Return the runs of a job, with those of the nodes of one execution together.

    Those don't differ by chance.
    """
    found: list[list[RunPaces]] = []
    for one in sorted(runs, key=lambda one: (one.run.command, one.run.started_ns, one.run.run)):
        before, run = found[-1][-1].run if found else one.run, one.run
        is_one = (
            before.is_part and run.is_part and run.started_ns - before.started_ns <= 600 * SECOND_NS
        )
        if (
            found
            and is_one
            and (before.command, before.world_size) == (run.command, run.world_size)
        ):
            found[-1].append(one)
        else:
            found.append([one])
    return found


class Gap(NamedTuple):
    """By how much the mean of one group is above that of another, with its standard error.

    ``weight`` is how many values it is worth.
    """

    value: float
    error: float
    freedom: int
    weight: float = 1.0

    def bounds(self, comparisons: int) -> tuple[float, float]:
        """Return bounds that hold for all comparisons at once, 95 times in 100."""
        width = t_quantile(1 - 0.05 / (2 * max(comparisons, 1)), self.freedom) * self.error
        return self.value - width, self.value + width


def gap(new: Sequence[float], base: Sequence[float]) -> Gap | None:
    """Return the gap of two groups with variances of their own (Welch).

    None if one has a single value.
    """
    if min(len(new), len(base)) < 2:
        return None
    one, other = statistics.variance(new) / len(new), statistics.variance(base) / len(base)
    error = math.sqrt(one + other)
    freedom = len(new) + len(base) - 2.0
    if error:
        freedom = (one + other) ** 2 / (one**2 / (len(new) - 1) + other**2 / (len(base) - 1))
    return Gap(statistics.fmean(new) - statistics.fmean(base), error, max(int(freedom), 1))


def pooled_gap(new: Sequence[float], base: Sequence[float]) -> Gap | None:
    """Return the gap of two groups that vary alike, of which one may have a single value.

    None of three in all.
    """
    freedom = len(new) + len(base) - 2
    if not new or not base or freedom < 2:
        return None
    squares = sum(
        statistics.variance(values) * (len(values) - 1) for values in (new, base) if len(values) > 1
    )
    weight = 1 / (1 / len(new) + 1 / len(base))
    return Gap(
        statistics.fmean(new) - statistics.fmean(base),
        math.sqrt(squares / freedom / weight),
        freedom,
        weight,
    )


def combined(gaps: Sequence[Gap]) -> Gap:
    """Return the mean of gaps of the same thing.

    Its degrees of freedom are Satterthwaite's. Each gap weighs as much as it has values.

    Not by how exact each seems: of few values, those that are alike by chance would count most, and
    promise too much.
    """
    whole = sum(one.weight for one in gaps)
    squares = [(one.weight / whole * one.error) ** 2 for one in gaps]
    spread = sum(square**2 / one.freedom for square, one in zip(squares, gaps, strict=True))
    freedom = sum(squares) ** 2 / spread if spread else sum(one.freedom for one in gaps)
    value = sum(one.weight / whole * one.value for one in gaps)
    return Gap(value, math.sqrt(sum(squares)), max(int(freedom), 1), whole)


Work = tuple[str, str, int]
"""A job, its command and the week: what takes equally long on equal nodes."""
Values = Mapping[Work, Mapping[str, Sequence[float]]]
"""By work and node the logarithms of what a step takes, a value a run."""


def find_slow_nodes(paces: Iterable[RunPaces], least: float) -> tuple[list[SlowNode], int]:
    """Return the slow nodes, and how many nodes were compared.

    A slow node is surely slower than the others, by ``least`` or more.

    The slowest first. Found nodes are left out when the rest are compared: two slow nodes don't
    hide each other.
    """
    values: defaultdict[Work, defaultdict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for one in paces:
        for week in sorted(one.weeks):
            pace = one.pace(one.days(week))
            # Without waiting for other ranks, as far as that can be seen.
            own_s = pace.step_s - pace.phases.get(COLLECTIVE, 0.0) if pace else 0.0
            if own_s > 0:
                values[one.run.job, one.run.command, week][one.run.node].append(math.log(own_s))
    compared = len(_gaps(values, frozenset()))
    found: list[SlowNode] = []
    while len(found) < compared:
        slow = []
        for node, gaps in _gaps(values, frozenset(one.node for one in found)).items():
            gap = combined([gaps[work] for work in sorted(gaps)])
            low, high = gap.bounds(compared)
            if low > 0 and math.exp(gap.value) >= 1 + least:
                runs = sum(len(values[work][node]) for work in gaps)
                jobs = tuple(sorted({job for job, _, _ in gaps}))
                slow.append(
                    SlowNode(node, math.exp(gap.value), math.exp(low), math.exp(high), jobs, runs)
                )
        if not slow:
            break
        found.append(max(slow, key=lambda one: (one.low, one.node)))
    return sorted(found, key=lambda one: (-one.times, one.node)), compared


def _gaps(values: Values, known: frozenset[str]) -> dict[str, dict[Work, Gap]]:
    """Return how each node that is not ``known`` to be slow differs from the others.

    The nodes are compared work by work.
    """
    found: defaultdict[str, dict[Work, Gap]] = defaultdict(dict)
    for work, by_node in values.items():
        for node in by_node.keys() - known:
            others = [one for other in by_node.keys() - known - {node} for one in by_node[other]]
            difference = pooled_gap(by_node[node], others)
            if difference is not None:
                found[node][work] = difference
    return found


RUNS, DAYS = "runs", "days of one run"


class PacePair(NamedTuple):
    """A job's paces in the last week and in an earlier one.

    ``basis`` is what each of them is of.
    """

    job: str
    now: Sequence[DaysPace]
    before: Sequence[DaysPace]
    weeks_ago: int
    basis: str

    def gap(self, measure: Callable[[DaysPace], float]) -> Gap | None:
        now, before = ([measure(one) for one in paces] for paces in (self.now, self.before))
        if self.basis == RUNS:
            return gap(now, before)
        # Neighboring days are alike.
        one, other = mean_of(now), mean_of(before)
        return Gap(
            one.value - other.value, math.hypot(one.error, other.error), len(now) + len(before) - 2
        )

    def means(self, measure: Callable[[DaysPace], float]) -> tuple[float, float]:
        return statistics.fmean(map(measure, self.before)), statistics.fmean(map(measure, self.now))


def find_slower(paces: Iterable[RunPaces], least: float) -> tuple[list[Slower], list[JobPace]]:
    """Return the jobs whose steps surely take longer, slowest first, and all jobs by week.

    Longer means by ``least`` or more.
    """
    ordered = sorted(paces, key=lambda one: (one.run.job, one.run.run))
    jobs = {
        job: list(some) for job, some in itertools.groupby(ordered, key=lambda one: one.run.job)
    }
    pairs = {job: _pair(job, runs) for job, runs in jobs.items()}
    compared = [pair for pair in pairs.values() if isinstance(pair, PacePair)]
    slower = [one for pair in compared if (one := _judged(pair, len(compared), least)) is not None]
    slower.sort(key=lambda one: (-one.times, one.job))
    job_paces = []
    for job, runs in jobs.items():
        weeks = []
        for week in sorted({week for run in runs for week in run.weeks}, reverse=True):
            of_week = _paces(runs, week)
            weeks.append(
                WeekPace(week, statistics.fmean(pace.step_s for pace in of_week), len(of_week))
            )
        pair = pairs[job]
        job_paces.append(JobPace(job, tuple(weeks), pair if isinstance(pair, str) else None))
    return slower, job_paces


def _pair(job: str, runs: Sequence[RunPaces]) -> PacePair | str:
    """Return the paces of a job to compare, or why there are none."""
    earlier = [week for run in runs for week in run.weeks if week > 0]
    if not any(0 in run.weeks for run in runs):
        return "it did not run in the last seven days"
    if not earlier:
        return "it did not run before the last seven days"
    week = min(earlier)
    now, before = _paces(runs, 0), _paces(runs, week)
    if min(len(now), len(before)) >= 2:
        return PacePair(job, now, before, week, RUNS)
    for run in runs:
        now, before = (
            [pace for day in run.days(one) if (pace := run.pace([day]))] for one in (0, week)
        )
        if min(len(now), len(before)) >= 3:
            return PacePair(job, now, before, week, DAYS)
    return "one run a week tells nothing of how much runs differ by chance"


def _paces(runs: Iterable[RunPaces], week: int) -> list[DaysPace]:
    """Return the paces of a week, one for each execution however many nodes it ran on."""
    found = []
    for together in executions(runs):
        paces = [pace for run in together if (pace := run.pace(run.days(week))) is not None]
        if paces:
            phases = {
                name: [pace.phases.get(name, 0.0) for pace in paces]
                for pace in paces
                for name in pace.phases
            }
            means = {name: statistics.fmean(phases[name]) for name in sorted(phases)}
            found.append(DaysPace(statistics.fmean(pace.step_s for pace in paces), means))
    return found


def _judged(pair: PacePair, comparisons: int, least: float) -> Slower | None:
    """Return a job as one that got slower; None if that may be chance, or is little."""
    found = pair.gap(lambda pace: math.log(pace.step_s))
    if found is None or found.value < math.log1p(least):
        return None
    low, high = found.bounds(comparisons)
    if low <= 0:
        return None
    before_s, now_s = pair.means(lambda pace: pace.step_s)
    times = (math.exp(found.value), math.exp(low), math.exp(high))
    phases, counts = tuple(_phases(pair, least * before_s)), (len(pair.before), len(pair.now))
    return Slower(pair.job, before_s, now_s, *times, pair.weeks_ago, *counts, pair.basis, phases)


def _phases(pair: PacePair, least_s: float) -> list[PhaseChange]:
    """Return the phases that surely take more of a step, those that grew most first."""
    names = sorted({phase for pace in (*pair.now, *pair.before) for phase in pace.phases})
    found = []
    for phase in names:

        def in_phase(pace: DaysPace, phase: str = phase) -> float:
            return pace.phases.get(phase, 0.0)

        difference = pair.gap(in_phase)
        if difference is not None and difference.value >= least_s:
            low, high = difference.bounds(len(names))
            if low > 0:
                found.append(PhaseChange(phase, *pair.means(in_phase), low, high))
    return sorted(found, key=lambda one: one.before_s - one.now_s)
