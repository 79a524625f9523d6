"""Where runs are reduced: one group of them after the other here, or all at once on a Dask cluster.

A group is the same in both and reduced by the same function, and groups are added up in one way: answers are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol

import msgspec

from profd.daemon.errors import MissingTool, ProfdError, RunUnreadable, SessionFailed
from profd.daemon.fleet.layout import Manifest
from profd.daemon.fleet.partial import Partial
from profd.daemon.fleet.reduction import Task, reduce_runs

_MOST_SAMPLES = 8_000_000
_MOST_RUNS = 500
_CONNECT_S = 10
_THIS = "this version of profd"


class Engine(Protocol):
    """Something that reduces groups of runs."""

    def reduce(self, tasks: Sequence[Task]) -> Iterable[Partial]:
        """Return what each group comes to, in any order."""


class Here:
    """One process, with DuckDB on all cores: one group at a time, so that memory is that of one group."""

    def reduce(self, tasks: Sequence[Task]) -> Iterator[Partial]:
        """Yield what each group comes to."""
        return map(reduce_runs, tasks)


class Cluster:
    """The workers of a Dask scheduler, which have profd installed and reach the data set by the same URL."""

    def __init__(self, address: str) -> None:
        self._address = address

    def reduce(self, tasks: Sequence[Task]) -> Iterator[Partial]:
        """Yield what each group comes to; raises MissingTool without Dask, SessionFailed without its scheduler."""
        try:
            import distributed
        except ImportError:
            raise MissingTool("this needs Dask, not installed here", "pip install 'profd[dask]'") from None
        try:
            client: Any = distributed.Client(self._address, timeout=_CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise SessionFailed(
                f"no Dask scheduler answers at {self._address} ({str(error) or type(error).__name__})",
                "name it as tcp://HOST:PORT",
            ) from None
        with client:
            if not client.nthreads():
                raise SessionFailed(f"the Dask scheduler at {self._address} has no workers", "start some")
            alone = [msgspec.structs.replace(task, threads=1) for task in tasks]
            futures = client.map(reduce_encoded, [msgspec.json.encode(task) for task in alone], pure=False)
            yield from map(_outcome, futures)


def _outcome(future: Any) -> Partial:  # noqa: ANN401  Dask has no types
    """Return what a group came to; raises SessionFailed where its worker failed, RunUnreadable where its files did."""
    try:
        error = future.exception()
    except CancelledError:
        raise SessionFailed("the Dask scheduler went away", "see what its log says") from None
    if error is not None:
        raise SessionFailed(
            f"a Dask worker failed ({type(error).__name__}: {error})", f"install {_THIS} on all of them"
        )
    try:
        decoded = msgspec.json.decode(future.result(), type=Reduced | Failed)
    except msgspec.DecodeError as error:
        raise SessionFailed(f"a Dask worker speaks otherwise ({error})", f"install {_THIS} on all of them") from None
    if isinstance(decoded, Failed):
        raise RunUnreadable(f"on a worker: {decoded.what}", decoded.remedy)
    return decoded.partial


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why a group could not be reduced."""

    what: str
    remedy: str


class Reduced(msgspec.Struct, frozen=True, tag=True):
    """What a group comes to."""

    partial: Partial


def reduce_encoded(task: bytes) -> bytes:
    """Reduce a group on a worker; what goes over the network is JSON, not objects that versions of Python differ in."""
    try:
        return msgspec.json.encode(Reduced(reduce_runs(msgspec.json.decode(task, type=Task))))
    except ProfdError as error:
        return msgspec.json.encode(Failed(error.what, error.remedy))


def grouped(runs: Iterable[Manifest]) -> Iterator[tuple[Manifest, ...]]:
    """Yield runs in groups of about equal size; a run is never divided."""
    group: list[Manifest] = []
    samples = 0
    for run in runs:
        if group and (samples + run.samples > _MOST_SAMPLES or len(group) == _MOST_RUNS):
            yield tuple(group)
            group, samples = [], 0
        group.append(run)
        samples += run.samples
    if group:
        yield tuple(group)
