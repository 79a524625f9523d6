"""Asks a data set: chooses runs, has them reduced, and puts the answers together.

Runs are reduced here or on a Dask cluster, in the same groups, by the same function, and added up
in the same way, so that answers are alike.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from datetime import datetime, timezone
from typing import Any

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import MissingTool, ProfdError, RunUnreadable, SessionFailed, UsageError
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
from profd.daemon.fleet.reduction import Partial, Spent, Task, merged, reduce_runs

_MOST_RUNS = 500  # in a group
_CONNECT_S = 10
_THIS = "this version of profd"


def _reduce_on_dask(address: str, tasks: Sequence[Task]) -> Iterator[Partial]:
    """Yield the sums of each group, by workers.

    They have profd installed and reach the data set by the same URL. Raises MissingTool without
    Dask, SessionFailed without its scheduler.
    """
    try:
        import distributed
    except ImportError:
        raise MissingTool(
            "this needs Dask, not installed here", "pip install 'profd[dask]'"
        ) from None
    try:
        client: Any = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        what = f"no Dask scheduler answers at {address} ({str(error) or type(error).__name__})"
        raise SessionFailed(what, "name it as tcp://HOST:PORT") from None
    with client:
        if not client.nthreads():
            raise SessionFailed(f"the Dask scheduler at {address} has no workers", "start some")
        alone = [msgspec.structs.replace(task, threads=1) for task in tasks]
        futures = client.map(
            reduce_encoded, [msgspec.json.encode(task) for task in alone], pure=False
        )
        yield from map(_outcome, futures)


def _outcome(future: Any) -> Partial:  # noqa: ANN401  Dask has no types
    """Return the sums of a group.

    Raises SessionFailed if its worker failed, RunUnreadable if its files did.
    """
    try:
        error = future.exception()
    except CancelledError:
        raise SessionFailed("the Dask scheduler went away", "see what its log says") from None
    if error is not None:
        what = f"a Dask worker failed ({type(error).__name__}: {error})"
        raise SessionFailed(what, f"install {_THIS} on all of them")
    try:
        decoded = msgspec.json.decode(future.result(), type=Partial | Failed)
    except msgspec.DecodeError as error:
        raise SessionFailed(
            f"a Dask worker speaks otherwise ({error})", f"install {_THIS} on all of them"
        ) from None
    if isinstance(decoded, Failed):
        raise RunUnreadable(f"on a worker: {decoded.what}", decoded.remedy)
    return decoded


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why a group could not be reduced."""

    what: str
    remedy: str


def reduce_encoded(task: bytes) -> bytes:
    """Reduce a group on a worker.

    JSON goes over the network, as objects differ between versions of Python.
    """
    try:
        return msgspec.json.encode(reduce_runs(msgspec.json.decode(task, type=Task)))
    except ProfdError as error:
        return msgspec.json.encode(Failed(error.what, error.remedy))


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
    functions: int = 20
    memory_bytes: int = 2_000_000_000


def ask(data: DataSet, question: Question, dask: str | None = None) -> Fleet:
    """Return the answers, which this process computes, or a Dask scheduler at an address.

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
    tasks = [
        Task(data.url, group, since_ns, until_ns, question.memory_bytes)
        for group in grouped(chosen)
    ]
    partial = merged(map(reduce_runs, tasks) if dask is None else _reduce_on_dask(dask, tasks))
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
        function_costs(partial, leaves=False, most=question.functions),
        function_costs(partial, leaves=True, most=question.functions),
        tuple(slow_nodes),
        compared,
        tuple(slower),
        tuple(job_paces),
    )


def _in_words(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // SECOND_NS, timezone.utc).isoformat()
