"""What costs most over all jobs: phases, findings and functions, in hours of ranks and of their GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from profd.daemon.clock import SECOND_NS
from profd.daemon.fleet.answers import FindingCost, FunctionCost, Hours, PhaseCost
from profd.daemon.fleet.reduction import Found, FunctionKey, Partial, RuleKey, Spent

_HOUR_NS = 3600 * SECOND_NS


def hours_of(spent: Spent) -> Hours:
    """Return times as hours."""
    times = (spent.rank_ns, spent.gpu_ns, spent.lost_ns, spent.gpu_lost_ns, spent.gpu_idle_ns)
    return Hours(*(time_ns / _HOUR_NS for time_ns in times))


def phase_costs(partial: Partial) -> tuple[PhaseCost, ...]:
    """Return what each phase takes, the largest loss first, then the largest cost."""
    jobs = {run.run: run.job for run in partial.runs}
    spent: defaultdict[str, Spent] = defaultdict(Spent)
    named: defaultdict[str, set[str]] = defaultdict(set)
    for key, one in partial.phases:
        spent[key.phase] = spent[key.phase].plus(one)
        named[key.phase].add(jobs[key.run])
    found = [PhaseCost(phase, hours_of(one), len(named[phase])) for phase, one in spent.items()]
    return tuple(sorted(found, key=lambda one: (*_by_loss(one.hours), one.phase)))


def whole(partial: Partial) -> Hours:
    """Return what all phases take together."""
    total = Spent()
    for _, one in partial.phases:
        total = total.plus(one)
    return hours_of(total)


def finding_costs(partial: Partial) -> tuple[FindingCost, ...]:
    """Return what each rule found, those first whose fixes can give back most."""
    by_rule: defaultdict[str, list[tuple[RuleKey, Found]]] = defaultdict(list)
    for key, found in partial.findings:
        by_rule[key.rule].append((key, found))
    costs = [_finding(rule, some) for rule, some in by_rule.items()]
    return tuple(sorted(costs, key=lambda one: (-one.gpus_lost_at_most, -one.ranks_lost_at_most, -one.runs, one.rule)))


def _finding(rule: str, some: Iterable[tuple[RuleKey, Found]]) -> FindingCost:
    found = list(some)
    most = max(found, key=lambda one: (one[1].gpu_lost_ns, one[1].lost_ns, one[0].job))
    return FindingCost(
        rule=rule,
        label=most[1].label,
        ranks_lost_at_most=sum(one.lost_ns for _, one in found) / _HOUR_NS,
        gpus_lost_at_most=sum(one.gpu_lost_ns for _, one in found) / _HOUR_NS,
        jobs=len(found),
        runs=sum(one.runs for _, one in found),
        most_in=most[0].job,
    )


def function_costs(partial: Partial, *, leaves: bool, most: int) -> tuple[FunctionCost, ...]:
    """Return the functions that take most, of the user's code or by themselves."""
    spent: defaultdict[tuple[str, str, str], Spent] = defaultdict(Spent)
    jobs: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for key, one in partial.functions:
        if key.is_leaf == leaves:
            place = _place(key)
            spent[place] = spent[place].plus(one)
            jobs[place].add(key.job)
    found = [FunctionCost(*place, hours_of(one), len(jobs[place]), one.runs) for place, one in spent.items()]
    found.sort(key=lambda one: (-one.hours.gpus, -one.hours.ranks, one.function, one.file, one.phase))
    return tuple(found[:most])


def _place(key: FunctionKey) -> tuple[str, str, str]:
    return key.function, key.file, key.phase


def _by_loss(hours: Hours) -> tuple[float, ...]:
    return (-hours.gpus_lost, -hours.ranks_lost, -hours.gpus, -hours.ranks)
