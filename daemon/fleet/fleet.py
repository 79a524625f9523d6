"""Asks a data set: chooses runs, has an engine reduce them, and puts the answers together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.fleet.answers import VERSION, Fleet
from profd.daemon.fleet.costs import finding_costs, function_costs, phase_costs, whole
from profd.daemon.fleet.dataset import DataSet
from profd.daemon.fleet.engines import Engine, Here, grouped
from profd.daemon.fleet.layout import DAY_NS, Manifest
from profd.daemon.fleet.nodes import find_slow_nodes
from profd.daemon.fleet.paces import take_paces
from profd.daemon.fleet.partial import Partial, merged
from profd.daemon.fleet.reduction import Task
from profd.daemon.fleet.weeks import find_slower

LEAST = 0.02
FUNCTIONS = 20
DAYS = 28
MEMORY_BYTES = 2_000_000_000


class Question(msgspec.Struct, frozen=True):
    """What is asked of a data set: the last ``days`` before ``until_ns``, which is the newest run's end unless given.

    Differences below ``least`` are called none.
    """

    until_ns: int | None = None
    days: int = DAYS
    least: float = LEAST
    functions: int = FUNCTIONS
    memory_bytes: int = MEMORY_BYTES


def ask(data: DataSet, question: Question, engine: Engine | None = None) -> Fleet:
    """Return the answers; raises UsageError where no run lies in the time that is asked for."""
    runs = data.manifests()
    until_ns = question.until_ns or max((run.ended_ns for run in runs), default=0) + 1
    since_ns = until_ns - question.days * DAY_NS
    chosen = [run for run in runs if run.started_ns < until_ns and run.ended_ns >= since_ns]
    if not chosen:
        raise UsageError(f"{data.url} has no runs in the time asked for", "ask for more with --days and --until")
    tasks = [Task(data.url, group, since_ns, until_ns, question.memory_bytes) for group in grouped(chosen)]
    return answer(merged((engine or Here()).reduce(tasks)), question, chosen, (since_ns, until_ns))


def answer(partial: Partial, question: Question, runs: Sequence[Manifest], between: tuple[int, int]) -> Fleet:
    """Return the answers that follow from what all runs come to."""
    paces = take_paces(partial)
    slow_nodes, compared = find_slow_nodes(paces, question.least)
    slow = {one.node for one in slow_nodes}
    # A slow node is told once: what it does to a job would hide what the job does itself.
    slower, job_paces = find_slower([one for one in paces if one.run.node not in slow], question.least)
    since, until = (datetime.fromtimestamp(at // SECOND_NS, timezone.utc).isoformat() for at in between)
    return Fleet(
        version=VERSION,
        since=since,
        until=until,
        runs=len(partial.runs),
        jobs=len({run.job for run in partial.runs}),
        nodes=len({run.node for run in partial.runs}),
        samples=sum(run.samples for run in runs),
        hours=whole(partial),
        phases=phase_costs(partial),
        findings=finding_costs(partial),
        functions=function_costs(partial, leaves=False, most=question.functions),
        leaves=function_costs(partial, leaves=True, most=question.functions),
        slow_nodes=tuple(slow_nodes),
        nodes_compared=compared,
        slower=tuple(slower),
        paces=tuple(job_paces),
    )
