"""Asks a data set: chooses runs, has them reduced, and puts the answers together."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.fleet.answers import (
    VERSION,
    Fleet,
    finding_costs,
    function_costs,
    hours_of,
    phase_costs,
)
from profd.daemon.fleet.dataset import DAY_NS, DataSet, Manifest
from profd.daemon.fleet.paces import find_slow_nodes, find_slower, take_paces
from profd.daemon.fleet.reduction import Spent, merged, reduce_runs
from profd.daemon.timerange import TimeRange

_MOST_RUNS = 500  # in a group


def grouped(runs: Iterable[Manifest]) -> Iterator[tuple[Manifest, ...]]:
    """Yield runs in groups of about equal size; a run is never divided."""
    group: list[Manifest] = []
    samples = 0
    for run in runs:
        if group and (samples + run.samples > 8_000_000 or len(group) == _MOST_RUNS):
            yield tuple(group)
            group, samples = [], 0
        group.append(run)
        samples += run.samples
    if group:
        yield tuple(group)


class Question(msgspec.Struct, frozen=True):
    """A question to a data set, about the last ``days`` before ``until_ns``.

    By default ``until_ns`` is the newest run's end. Differences below ``least`` do not count.
    """

    until_ns: int | None = None
    days: int = 28
    least: float = 0.02
    memory_bytes: int = 2_000_000_000


def ask(data: DataSet, question: Question) -> Fleet:
    """Return the answers.

    Raises UsageError if no run lies in the time that is asked for.
    """
    manifests = data.manifests()
    until_ns = question.until_ns or max((run.ended_ns for run in manifests), default=0) + 1
    since_ns = until_ns - question.days * DAY_NS
    chosen = [run for run in manifests if run.started_ns < until_ns and run.ended_ns >= since_ns]
    if not chosen:
        raise UsageError(
            f"{data.url} has no runs in the time asked for", "ask for more with --days and --until"
        )
    time = TimeRange(since_ns, until_ns)
    reduce = functools.partial(reduce_runs, data, time, question.memory_bytes)
    partial = merged(map(reduce, grouped(chosen)))
    paces = take_paces(partial)
    slow_nodes, compared = find_slow_nodes(paces, question.least)
    slow = {one.node for one in slow_nodes}
    # A slow node is reported once: its effect on a job would hide what the job does itself.
    others = [one for one in paces if one.run.node not in slow]
    slower, job_paces = find_slower(others, question.least)
    spent = functools.reduce(Spent.plus, (spent for _, spent in partial.phases), Spent())
    return Fleet(
        VERSION,
        _in_words(since_ns),
        _in_words(until_ns),
        len(partial.runs),
        len({run.job for run in partial.runs}),
        len({run.node for run in partial.runs}),
        sum(run.samples for run in chosen),
        hours_of(spent),
        phase_costs(partial),
        finding_costs(partial),
        function_costs(partial, leaves=False),
        function_costs(partial, leaves=True),
        tuple(slow_nodes),
        compared,
        tuple(slower),
        tuple(job_paces),
    )


def _in_words(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // SECOND_NS, timezone.utc).isoformat()
