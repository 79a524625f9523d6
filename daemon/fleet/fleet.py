"""Asks a data set: chooses runs, has them reduced, and puts the answers together."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.fleet.answers import VERSION, Fleet
from profd.daemon.fleet.dataset import DAY_NS, DataSet
from profd.daemon.fleet.reduction import reduce_runs
from profd.daemon.fleet.slownodes import find_slow_nodes, take_steps
from profd.daemon.timerange import TimeRange


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
    reduced = reduce_runs(data, TimeRange(since_ns, until_ns), question.memory_bytes, chosen)
    slow_nodes, compared = find_slow_nodes(take_steps(reduced), question.least)
    return Fleet(
        VERSION,
        _in_words(since_ns),
        _in_words(until_ns),
        len(reduced.runs),
        len({run.job for run in reduced.runs}),
        len({run.node for run in reduced.runs}),
        sum(run.samples for run in chosen),
        reduced.hours,
        reduced.phases,
        reduced.findings,
        reduced.functions,
        reduced.leaves,
        tuple(slow_nodes),
        compared,
    )


def _in_words(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // SECOND_NS, timezone.utc).isoformat()
