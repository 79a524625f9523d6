"""How long a step of each run takes, day by day, and what it consists of: what nodes and weeks are compared by."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from profd.daemon.analyze.phases import COLLECTIVE
from profd.daemon.clock import SECOND_NS
from profd.daemon.fleet.partial import Partial, RunPart, Spent, Stepped

WEEK_DAYS = 7
_MICRO = 1_000_000
_TOGETHER_NS = 600 * SECOND_NS


class Pace(msgspec.Struct, frozen=True):
    """Some days of a run: the seconds of a step, and the part of it that each phase takes."""

    step_s: float
    phases: Mapping[str, float]

    @property
    def own_s(self) -> float:
        """The step without waiting for other ranks, as far as that can be seen."""
        return self.step_s - self.phases.get(COLLECTIVE, 0.0)


class RunPaces:
    """A run by days."""

    def __init__(self, run: RunPart, steps: Mapping[int, Stepped], phases: Mapping[int, Mapping[str, Spent]]) -> None:
        self.run = run
        self._steps = steps
        self._phases = phases

    @property
    def weeks(self) -> frozenset[int]:
        """The weeks that it made steps in; 0 is the last one."""
        return frozenset(day // WEEK_DAYS for day, one in self._steps.items() if one.microsteps)

    def days(self, week: int) -> list[int]:
        """Return the days of a week that it made steps in, in order of time."""
        return sorted(
            (day for day, one in self._steps.items() if day // WEEK_DAYS == week and one.microsteps), reverse=True
        )

    def pace(self, days: Collection[int]) -> Pace | None:
        """Return the pace over some of the days that it made steps in; None over no day."""
        if not days:
            return None
        microsteps = sum(self._steps[day].microsteps for day in days)
        step_s = sum(self._steps[day].duration_ns for day in days) / SECOND_NS * _MICRO / microsteps
        spent: defaultdict[str, int] = defaultdict(int)
        for day in days:
            for phase, one in self._phases.get(day, {}).items():
                spent[phase] += one.rank_ns
        whole = sum(spent.values())
        return Pace(step_s, {phase: step_s * spent[phase] / whole for phase in sorted(spent)} if whole else {})


def take_paces(partial: Partial) -> list[RunPaces]:
    """Return the runs that tell their steps, in order of their names."""
    steps: defaultdict[str, dict[int, Stepped]] = defaultdict(dict)
    phases: defaultdict[str, defaultdict[int, dict[str, Spent]]] = defaultdict(lambda: defaultdict(dict))
    for day, stepped in partial.steps:
        steps[day.run][day.day] = stepped
    for key, spent in partial.phases:
        phases[key.run][key.day][key.phase] = spent
    return [RunPaces(run, steps[run.run], phases[run.run]) for run in partial.runs if run.run in steps]


def mean_pace(paces: Sequence[Pace]) -> Pace:
    """Return the mean of paces of ranks that step together."""
    names = sorted({phase for pace in paces for phase in pace.phases})
    step_s = statistics.fmean(pace.step_s for pace in paces)
    return Pace(step_s, {name: statistics.fmean(pace.phases.get(name, 0.0) for pace in paces) for name in names})


def executions(runs: Iterable[RunPaces]) -> list[list[RunPaces]]:
    """Return the runs of a job, those of the nodes of one execution together: they don't differ by chance."""
    found: list[list[RunPaces]] = []
    for one in sorted(runs, key=lambda one: (one.run.command, one.run.started_ns, one.run.run)):
        if found and _is_with(found[-1][-1].run, one.run):
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _is_with(earlier: RunPart, run: RunPart) -> bool:
    """Say whether two runs of a job, in order of time, are of nodes that began together."""
    return (
        earlier.is_part
        and run.is_part
        and (earlier.command, earlier.world_size) == (run.command, run.world_size)
        and run.started_ns - earlier.started_ns <= _TOGETHER_NS
    )


def by_job(paces: Iterable[RunPaces]) -> dict[str, list[RunPaces]]:
    """Return runs by the name of their job, in order."""
    ordered = sorted(paces, key=lambda one: (one.run.job, one.run.run))
    return {job: list(some) for job, some in itertools.groupby(ordered, key=lambda one: one.run.job)}
