"""How long each run's steps take, and nodes that are slow.

Runs differ by chance, all of a job alike. Without several of them a job is not compared.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.analyze.phases import COLLECTIVE
from profd.daemon.clock import SECOND_NS
from profd.daemon.fleet.answers import SlowNode
from profd.daemon.fleet.reduction import Reduced, RunPart, Stepped


class RunSteps(NamedTuple):
    """A run, with its steps and the time of its ranks in each phase, both by day."""

    run: RunPart
    steps: Mapping[int, Stepped]
    phase_ns: Mapping[int, Mapping[str, int]]

    def own_step_s(self, week: int) -> float:
        """Return the seconds of a step in a week, as far as it can be seen without other ranks.

        0 if it made none.
        """
        days = [day for day in self.steps if day // 7 == week]
        microsteps = sum(self.steps[day].microsteps for day in days)
        spent_ns = sum((Counter(self.phase_ns.get(day, {})) for day in days), Counter[str]())
        waited = spent_ns[COLLECTIVE] / (spent_ns.total() or 1)
        duration_ns = sum(self.steps[day].duration_ns for day in days)
        return duration_ns / SECOND_NS * 1e6 / microsteps * (1 - waited) if microsteps else 0.0


def take_steps(reduced: Reduced) -> list[RunSteps]:
    """Return the runs that made steps."""
    return [
        RunSteps(run, reduced.steps[run.run], reduced.phase_ns[run.run])
        for run in reduced.runs
        if run.run in reduced.steps
    ]


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


def find_slow_nodes(runs: Iterable[RunSteps], least: float) -> tuple[list[SlowNode], int]:
    """Return the slow nodes, and how many nodes were compared.

    A slow node is surely slower than the others, by ``least`` or more.

    The slowest first. Found nodes are left out when the rest are compared: two slow nodes don't
    hide each other.
    """
    values: defaultdict[Work, defaultdict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for one in runs:
        for week in {day // 7 for day in one.steps}:
            if own_s := one.own_step_s(week):
                values[one.run.job, one.run.command, week][one.run.node].append(math.log(own_s))
    compared = len(_gaps(values, frozenset()))
    found: list[SlowNode] = []
    while len(found) < compared:
        slow = []
        for node, gaps in _gaps(values, frozenset(one.node for one in found)).items():
            gap = combined([gaps[work] for work in sorted(gaps)])
            low, high = gap.bounds(compared)
            if low > 0 and math.exp(gap.value) >= 1 + least:
                count = sum(len(values[work][node]) for work in gaps)
                jobs = tuple(sorted({job for job, _, _ in gaps}))
                times = math.exp(gap.value), math.exp(low), math.exp(high)
                slow.append(SlowNode(node, *times, jobs, count))
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
