"""How long each run's steps take, slow nodes, and jobs that slowed since last week.

Runs differ by chance, all of a job alike; those of the nodes of one execution count as one. If one
run lasts from one week to the other, its days are compared. Without several runs or days a job is
not compared.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.analyze.phases import COLLECTIVE
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.blocks import mean_of
from profd.daemon.fleet.answers import JobPace, PhaseChange, Slower, SlowNode, WeekPace
from profd.daemon.fleet.reduction import Reduced, RunPart, Stepped


class DaysPace(msgspec.Struct, frozen=True):
    """Some days of a run: the seconds of a step, and the part of it that each phase takes."""

    step_s: float
    phases: Mapping[str, float]

    def in_phase(self, phase: str) -> float:
        """Return the seconds of a step in a phase."""
        return self.phases.get(phase, 0.0)


class RunPaces:
    """A run by days.

    ``weeks`` has the days of each week that it made steps in, in order of time; 0 is the last one.
    """

    def __init__(
        self,
        run: RunPart,
        steps: Mapping[int, Stepped],
        phase_ns: Mapping[int, Mapping[str, int]],
    ) -> None:
        self.run, self._steps, self._phase_ns = run, steps, phase_ns
        self.weeks: defaultdict[int, list[int]] = defaultdict(list)
        for day in sorted(steps, reverse=True):
            if steps[day].microsteps:
                self.weeks[day // 7].append(day)

    def pace(self, days: Sequence[int]) -> DaysPace:
        """Return the pace over some of the days that it made steps in."""
        microsteps = sum(self._steps[day].microsteps for day in days)
        step_s = sum(self._steps[day].duration_ns for day in days) / SECOND_NS * 1e6 / microsteps
        spent_ns: Counter[str] = Counter()
        for day in days:
            spent_ns.update(self._phase_ns.get(day, {}))
        whole_ns = spent_ns.total()
        return DaysPace(
            step_s,
            {phase: step_s * spent_ns[phase] / whole_ns for phase in sorted(spent_ns)}
            if whole_ns
            else {},
        )


def take_paces(reduced: Reduced) -> list[RunPaces]:
    """Return the paces of the runs that made steps."""
    return [
        RunPaces(run, reduced.steps[run.run], reduced.phase_ns[run.run])
        for run in reduced.runs
        if run.run in reduced.steps
    ]


def executions(runs: Iterable[RunPaces]) -> list[list[RunPaces]]:
    """Return the runs of a job, with those of the nodes of one execution together.

    Those don't differ by chance.
    """
    found: list[list[RunPaces]] = []
    for one in sorted(runs, key=lambda one: (one.run.command, one.run.started_ns, one.run.run)):
        if found and _are_together(found[-1][-1].run, one.run):
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _are_together(one: RunPart, later: RunPart) -> bool:
    return (
        one.is_part
        and later.is_part
        and later.started_ns - one.started_ns <= 600 * SECOND_NS
        and (one.command, one.world_size) == (later.command, later.world_size)
    )


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


def gap(new: Sequence[float], base: Sequence[float]) -> Gap:
    """Return the gap of two groups that vary alike, of which one may have a single value."""
    freedom = len(new) + len(base) - 2
    squares = sum(statistics.pvariance(values) * len(values) for values in (new, base))
    weight = 1 / (1 / len(new) + 1 / len(base))
    error = math.sqrt(squares / freedom / weight)
    return Gap(statistics.fmean(new) - statistics.fmean(base), error, freedom, weight)


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
            pace = one.pace(one.weeks[week])
            # Without waiting for other ranks, as far as that can be seen.
            own_s = pace.step_s - pace.in_phase(COLLECTIVE)
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
                times = math.exp(gap.value), math.exp(low), math.exp(high)
                slow.append(SlowNode(node, *times, jobs, runs))
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
            if others and len(by_node[node]) + len(others) > 3:  # fewer tell nothing
                found[node][work] = gap(by_node[node], others)
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

    def gap(self, measure: Callable[[DaysPace], float]) -> Gap:
        now, before = (list(map(measure, paces)) for paces in (self.now, self.before))
        if self.basis == RUNS:
            return gap(now, before)
        # Neighboring days are alike.
        more = mean_of(now).less(mean_of(before))
        return Gap(more.value, more.error, len(now) + len(before) - 2)

    def means(self, measure: Callable[[DaysPace], float]) -> tuple[float, float]:
        return statistics.fmean(map(measure, self.before)), statistics.fmean(map(measure, self.now))


def find_slower(paces: Iterable[RunPaces], least: float) -> tuple[list[Slower], list[JobPace]]:
    """Return the jobs whose steps surely take longer, slowest first, and all jobs by week.

    Longer means by ``least`` or more.
    """
    ordered = sorted(paces, key=lambda one: (one.run.job, one.run.run))
    pairs, job_paces = list[PacePair](), list[JobPace]()
    for job, some in itertools.groupby(ordered, key=lambda one: one.run.job):
        runs = list(some)
        pair = _pair(job, runs)
        if isinstance(pair, PacePair):
            pairs.append(pair)
        weeks = sorted({week for run in runs for week in run.weeks}, reverse=True)
        week_paces = tuple(_week_pace(runs, week) for week in weeks)
        job_paces.append(JobPace(job, week_paces, pair if isinstance(pair, str) else None))
    slower = [one for pair in pairs if (one := _judged(pair, len(pairs), least)) is not None]
    slower.sort(key=lambda one: (-one.times, one.job))
    return slower, job_paces


def _week_pace(runs: Sequence[RunPaces], week: int) -> WeekPace:
    paces = _paces(runs, week)
    return WeekPace(week, statistics.fmean(pace.step_s for pace in paces), len(paces))


def _pair(job: str, runs: Sequence[RunPaces]) -> PacePair | str:
    """Return the paces of a job to compare, or why there are none."""
    weeks = {week for run in runs for week in run.weeks}
    if 0 not in weeks:
        return "it did not run in the last seven days"
    if len(weeks) == 1:
        return "it did not run before the last seven days"
    week = min(weeks - {0})
    now, before = _paces(runs, 0), _paces(runs, week)
    if min(len(now), len(before)) >= 2:
        return PacePair(job, now, before, week, RUNS)
    for run in runs:
        now, before = ([run.pace([day]) for day in run.weeks.get(one, ())] for one in (0, week))
        if min(len(now), len(before)) >= 3:
            return PacePair(job, now, before, week, DAYS)
    return "one run a week tells nothing of how much runs differ by chance"


def _paces(runs: Iterable[RunPaces], week: int) -> list[DaysPace]:
    """Return the paces of a week, one for each execution however many nodes it ran on."""
    found = []
    for together in executions(runs):
        paces = [run.pace(run.weeks[week]) for run in together if week in run.weeks]
        if paces:
            names = sorted({name for pace in paces for name in pace.phases})
            step_s = statistics.fmean(pace.step_s for pace in paces)
            phases = {
                name: statistics.fmean(pace.in_phase(name) for pace in paces) for name in names
            }
            found.append(DaysPace(step_s, phases))
    return found


def _judged(pair: PacePair, comparisons: int, least: float) -> Slower | None:
    """Return a job as one that got slower; None if that may be chance, or is little."""
    found = pair.gap(lambda pace: math.log(pace.step_s))
    low, high = found.bounds(comparisons)
    if low <= 0 or found.value < math.log1p(least):
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
        in_phase = methodcaller("in_phase", phase)
        more = pair.gap(in_phase)
        low, high = more.bounds(len(names))
        if low > 0 and more.value >= least_s:
            found.append(PhaseChange(phase, *pair.means(in_phase), low, high))
    return sorted(found, key=lambda one: one.before_s - one.now_s)
