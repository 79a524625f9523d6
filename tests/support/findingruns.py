"""Makes run files for the rules of the diagnosis: trainings that spend known shares of their time
on known causes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.findings.analyst import Analyst, look_at_all
from profd.daemon.findings.catalog import find
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import Finding
from profd.daemon.findings.rule import Rule
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken, Frame
from support.present import there
from support.synthetic import (
    COMMAND,
    MAIN,
    MAIN_TID,
    STARTED_NS,
    main_process,
    recording,
    worker,
    write_records,
)
from support.training_stacks import (
    BACKWARD,
    CONV,
    DATA,
    DATA_WAIT,
    LIBRARY,
    OPTIMIZER,
    SOURCES,
    TRAIN,
    WORKER_STEP,
    describe,
)

Spans = Sequence[tuple[tuple[Frame, ...], int]]
Lines = Mapping[tuple[str, int], str]

STEP_MS = 500
BESIDE_TID = MAIN_TID + 1
STANDARD = "/usr/lib/python3.11/"
LOOP = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90))
ROOT = (*LOOP, Frame("train_epoch", TRAIN, 59))
CALL = (*LOOP, Frame("train_epoch", TRAIN, 66))
SNAPSHOT = (*CALL, Frame("snapshot", DATA, 12))
DUMPS = Frame("dumps", STANDARD + "json/__init__.py", 231)
ENCODE = (*SNAPSHOT, DUMPS, Frame("JSONEncoder.iterencode", STANDARD + "json/encoder.py", 258))
QUEUE_GET = Frame("Queue.get", STANDARD + "queue.py", 171)
OWN = (*CALL, Frame("relabel", DATA, 40))
PASS = (*LOOP, Frame("train_epoch", TRAIN, 61))
CALL_IMPL = Frame("Module._call_impl", LIBRARY + "torch/nn/modules/module.py", 1773)
MEASURE = (*PASS, CALL_IMPL, Frame("Observer.forward", DATA, 60))
LOAD_IN_PROCESS = (
    *LOOP,
    Frame("train_epoch", TRAIN, 58),
    Frame("_BaseDataLoaderIter.__next__", LIBRARY + "torch/utils/data/dataloader.py", 732),
    Frame(
        "_SingleProcessDataLoaderIter._next_data", LIBRARY + "torch/utils/data/dataloader.py", 788
    ),
    Frame("_MapDatasetFetcher.fetch", LIBRARY + "torch/utils/data/_utils/fetch.py", 52),
    Frame("Photos.__getitem__", DATA, 33),
)
WORKER_WAITS = (
    *WORKER_STEP[0][0][:-3],
    Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
)
IMPORT = (
    Frame("<module>", TRAIN, 3),
    Frame("_find_and_load", "<frozen importlib._bootstrap>", 1176),
)


def at_most_without(share: float, indirect: float = 0.25) -> float:
    """Return how many times the pace a step has at most without a share of it, and what that had
    cost the rest.
    """
    return 1 / ((1 - share) * (1 - indirect * share))


def step(*lost: tuple[tuple[Frame, ...], int]) -> Spans:
    """Return a step of half a second: what is lost, in milliseconds, and otherwise forward,
    backward and a little.
    """
    left_ms = STEP_MS - sum(length_ms for _, length_ms in lost) - 10
    return (*lost, (CONV, left_ms // 2), (BACKWARD, left_ms - left_ms // 2), (OPTIMIZER, 10))


HEALTHY = step((DATA_WAIT, 10))
BUSY_WORKER = WORKER_STEP
IDLE_WORKER: Spans = ((WORKER_STEP[0][0], 100), (WORKER_WAITS, 400))


class Series:
    """Values of one series, a second apart, None if it is not read; of the training by default."""

    def __init__(
        self,
        name: str,
        *values: float | None,
        identity: records.Identity | None = MAIN,
        tid: int | None = None,
        device: str | None = None,
    ) -> None:
        self.name, self.values, self.identity, self.tid, self.device = (
            name,
            values,
            identity,
            tid,
            device,
        )

    def points(self, second: int) -> list[records.Point]:
        """Return its point at a second, if it is read; the last value goes on."""
        value = self.values[min(second, len(self.values) - 1)]
        point = partial(records.Point, self.name)
        return [] if value is None else [point(value, self.identity, self.tid, self.device)]


GPU = "gpu0"


def of_gpu(name: str, *values: float, device: str = GPU) -> Series:
    return Series(name, *values, identity=None, device=device)


def gpu(utilization: float, *others: Series, device: str = GPU) -> list[Series]:
    """Return the series of a GPU that the training uses."""
    used = Series("gpu_process_memory_bytes", 1e9, device=device)
    return [of_gpu("gpu_utilization_share", utilization, device=device), used, *others]


def cores(count: int) -> list[Series]:
    return [
        Series("host_core_cpu_share", 0.5, identity=None, device=f"cpu{number}")
        for number in range(count)
    ]


def write_case(
    path: Path,
    *steps: Spans,
    workers: Mapping[int, Spans] | None = None,
    series: Sequence[Series] = (),
    seconds: int = 30,
    generations: int = 1,
    more: Sequence[records.Record] = (),
    beside: Spans | None = None,
    sample_ms: int = 10,
    lines: Lines | None = None,
    role: str = "worker",
) -> Path:
    """Write a run that makes the same step twice a second, or one after the other of several, a
    second each.

    ``workers`` are those of a DataLoader by number with what each does in half a second; with
    several ``generations`` they are started anew so many times. With another ``role`` they are
    other children of the training process. ``more`` is written first.
    ``beside`` is what another thread of the training process does in half a second. The training
    process is sampled every ``sample_ms``. ``lines`` are texts of lines.
    """
    found: list[records.Record] = [main_process(), *more]
    for second in range(seconds):
        start_ns = STARTED_NS + second * SECOND_NS
        generation = second * generations // seconds
        found += _born(workers or {}, second, generation, start_ns, seconds / generations, role)
        spans = (*steps[second % len(steps)],) * 2
        threads: list[tuple[int, str, bool, Spans]] = [(MAIN_TID, "MainThread", True, spans)]
        threads += [(BESIDE_TID, "beside", False, (*beside, *beside))] if beside else []
        found.append(recording(MAIN, start_ns, threads, sample_ns=sample_ms * MILLISECOND_NS))
        for number, done in (workers or {}).items():
            identity = _identity(number, generation)
            found.append(
                recording(identity, start_ns, [(identity.pid, "MainThread", True, (*done, *done))])
            )
        if points := tuple(point for one in series for point in one.points(second)):
            found.append(records.PointsTaken(start_ns + SECOND_NS, points))
    found.append(records.RunEnded(STARTED_NS + seconds * SECOND_NS, "target-exited", 0))
    return write_records(
        path, found, described=partial(describe, texts={**SOURCES, **(lines or {})})
    )


def diagnose(path: Path, rule: Rule) -> Finding | None:
    """Return what one rule finds in a run file."""
    with RunReader(path) as reader:
        return rule(FindingContext(reader))


class Case:
    """What rules find in runs that a test writes, by ``write``: steps, or the ranks of a job."""

    def __init__(self, folder: Path, write: Callable[..., Path] = write_case) -> None:
        self.path, self._write = folder / "case.profd", write
        self._lines: dict[tuple[str, int], str] = {}

    def line(self, function: str, line: int, text: str, file: str = DATA) -> Frame:
        """Return a frame at a line of the user, which has this text in the runs that come."""
        self._lines[file, line] = text
        return Frame(function, file, line)

    def found(self, rule: Rule, *done: Any, **more: Any) -> Finding | None:  # noqa: ANN401
        """Return what a rule finds in the run that is made of these words."""
        return diagnose(self._made(*done, **more), rule)

    def findings(self, *done: Any, **more: Any) -> tuple[Finding, ...]:  # noqa: ANN401
        """Return what all rules find in such a run."""
        with RunReader(self._made(*done, **more)) as reader:
            return find(reader)

    def _made(self, *done: Any, **more: Any) -> Path:  # noqa: ANN401
        self.path.unlink(missing_ok=True)
        if self._lines:
            more.setdefault("lines", self._lines)
        return self._write(self.path, *done, **more)

    def finding(self, rule: Rule, *done: Any, **more: Any) -> Finding:  # noqa: ANN401
        """Return what a rule finds, where it has to find something."""
        return there(self.found(rule, *done, **more))

    def title(self, rule: Rule, *done: Any, **more: Any) -> str:  # noqa: ANN401
        return self.finding(rule, *done, **more).title

    def severity(self, rule: Rule, *done: Any, **more: Any) -> str | None:  # noqa: ANN401
        """Return how grave what a rule finds is; None where it finds nothing."""
        found = self.found(rule, *done, **more)
        return found.severity if found else None


def _identity(number: int, generation: int) -> records.Identity:
    first = worker(number)
    return records.Identity(first.pid + 100 * generation, first.start_ticks + generation)


def _born(
    workers: Mapping[int, Spans],
    second: int,
    generation: int,
    at_ns: int,
    lifetime_s: float,
    role: str,
) -> list[records.Record]:
    """Return the records of workers that begin in this second, and of those that they replace."""
    if second and int((second - 1) / lifetime_s) == generation:
        return []
    found: list[records.Record] = []
    for number in workers:
        if generation:
            found.append(
                records.ProcessEnded(_identity(number, generation - 1), at_ns, exit_code=0)
            )
        identity = _identity(number, generation)
        ordinal = number if role == "worker" else None
        found.append(
            records.ProcessSeen(identity, MAIN, COMMAND, role, None, ordinal, "3.11.7", at_ns)
        )
    return found


def look(path: Path) -> FindingsTaken:
    """Look at a run as the process does that looks for findings, once."""
    with RunReader(path) as reader:
        return Analyst(reader).look() if reader.info.state == "live" else look_at_all(path)
