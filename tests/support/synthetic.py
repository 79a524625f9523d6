"""Makes run files with known answers, through the writer that real sessions use.

The run trains at two steps a second, and each step spends the same time in the same stacks
(``STEP``), sampled evenly at 100 Hz. Over any whole number of seconds the shares of the main
thread's time are therefore exactly ``PHASE_SHARES``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, Identity, Interval
from profd.daemon.store.writer import RunWriter
from support.training_stacks import BACKWARD as BACKWARD
from support.training_stacks import CONV as CONV
from support.training_stacks import DATA_WAIT as DATA_WAIT
from support.training_stacks import DEFORM as DEFORM
from support.training_stacks import LIBRARY as LIBRARY
from support.training_stacks import LOAD as LOAD
from support.training_stacks import LOSS as LOSS
from support.training_stacks import OPTIMIZER as OPTIMIZER
from support.training_stacks import PHASE_SHARES as PHASE_SHARES
from support.training_stacks import PIN_MEMORY as PIN_MEMORY
from support.training_stacks import SOURCES as SOURCES
from support.training_stacks import STEP as STEP
from support.training_stacks import TRAIN as TRAIN
from support.training_stacks import WORKER_STEP as WORKER_STEP
from support.training_stacks import describe as describe
from support.waiting import DEADLINE_S, until

RATE_HZ = 100
SAMPLE_NS = SECOND_NS // RATE_HZ
STARTED_NS = 1_795_176_000 * SECOND_NS
RUN_ID = "20261120-120000-cifar-3fa9"
COMMAND = ("python", "train.py", "--epochs", "2")
TORN_PER_SECOND = 2
MAIN = Identity(4242, 1000)
MAIN_TID, PIN_TID = 4242, 4250
_VERSIONS = {"profd": "0.1.0", "python": "3.11.7", "py_spy": "0.4.1", "kernel": "6.1.0"}


def steps_counted(
    at_s: float, steps: float, identity: Identity = MAIN, started_ns: int = STARTED_NS
) -> records.PointsTaken:
    """Return how many steps a process had made, so many seconds after the beginning."""
    return records.PointsTaken(
        started_ns + round(at_s * SECOND_NS), (records.Point("step_count", steps, identity),)
    )


def worker(ordinal: int) -> Identity:
    """Return the identity of a DataLoader worker, counted from 1."""
    return Identity(MAIN.pid + ordinal, MAIN.start_ticks + 100)


def write_run(
    path: Path,
    *,
    live: bool = False,
    seconds: int = 20,
    workers: int = 2,
    exit_code: int | None = 0,
    exit_signal: int | None = None,
    also: Sequence[records.Record] = (),
) -> Path:
    """Write a run of ``seconds``, and what else happened in it, and return its path.

    A live one is left in state ``live``, recorded by the process that calls this and up to date
    with the wall clock, with nobody writing to it; see ``live_run`` for one that grows.
    """
    started_ns = time.time_ns() - seconds * SECOND_NS if live else STARTED_NS
    found = _first_records(started_ns, workers)
    for second in range(seconds):
        found += _one_second(started_ns + second * SECOND_NS, second, workers)
    found += also
    if not live:
        found += _last_records(started_ns + seconds * SECOND_NS, workers, exit_code, exit_signal)
    return write_records(path, found, run_started(started_ns, live=live))


def write_records(
    path: Path,
    found: Iterable[records.Record],
    started: records.RunStarted | None = None,
    described: Callable[[Frame], records.FrameDescription] | None = None,
) -> Path:
    """Write a run of these records, and return its path."""
    writer = RunWriter(path, started or run_started(), described or describe)
    _put_all(writer, found)
    writer.close(DEADLINE_S)
    assert writer.failure is None, writer.failure
    return path


class LiveRun:
    """A run that is being written: its reader sees it grow by ``advance``."""

    def __init__(self, path: Path, writer: RunWriter, started_ns: int, workers: int) -> None:
        self.path = path
        self.writer = writer
        self.started_ns = started_ns
        self.seconds = 0
        self._workers = workers

    def advance(self, seconds: int = 1) -> None:
        """Write more of the run, and return when a reader can see it."""
        for _ in range(seconds):
            start_ns = self.started_ns + self.seconds * SECOND_NS
            _put_all(self.writer, _one_second(start_ns, self.seconds, self._workers))
            self.seconds += 1
        self._wait_until_committed()

    def end(self, exit_code: int | None = 0, exit_signal: int | None = None) -> None:
        end_ns = self.started_ns + self.seconds * SECOND_NS
        _put_all(self.writer, _last_records(end_ns, self._workers, exit_code, exit_signal))
        self.writer.close(DEADLINE_S)

    def _wait_until_committed(self) -> None:
        with RunReader(self.path) as reader:

            def is_committed() -> bool:
                assert not self.writer.failure, self.writer.failure
                reader.refresh()
                return reader.info.end_ns >= self.started_ns + self.seconds * SECOND_NS

            until(is_committed, "a reader that sees what was written")


@contextlib.contextmanager
def live_run(path: Path, *, seconds: int = 5, workers: int = 2) -> Iterator[LiveRun]:
    """Give a run that this process records, with ``seconds`` written up to now.

    Close its writer at the end.
    """
    started_ns = time.time_ns() - seconds * SECOND_NS
    writer = RunWriter(path, run_started(started_ns, live=True), describe)
    try:
        _put_all(writer, _first_records(started_ns, workers))
        run = LiveRun(path, writer, started_ns, workers)
        run.advance(seconds)
        yield run
    finally:
        writer.close(DEADLINE_S)


def run_started(started_ns: int = STARTED_NS, *, live: bool = False) -> records.RunStarted:
    """Return the first record of a synthetic run."""
    return records.RunStarted(
        id=RUN_ID,
        name="cifar",
        mode="launched",
        target=MAIN,
        command=COMMAND,
        cwd="/home/ada/cifar",
        host="ada-desktop",
        user="ada",
        started_ns=started_ns,
        recorder=identity_of() if live else Identity(4200, 900),
        versions=_VERSIONS,
        options={
            "rate_hz": RATE_HZ,
            "budget_percent": 10.0,
            "subprocesses": True,
            "duration_s": None,
        },
    )


def recording(
    identity: Identity,
    start_ns: int,
    threads: Sequence[tuple[int, str, bool, Sequence[tuple[tuple[Frame, ...], int]]]],
    *,
    duration_ns: int = SECOND_NS,
    torn: int = 0,
    sample_ns: int = SAMPLE_NS,
) -> records.RecordingTaken:
    """Return a recording sampled evenly, at 100 Hz by default.

    ``threads`` are (os_tid, name, is_main, [(stack, milliseconds)]), their stacks in order of time
    from ``start_ns``.
    """
    stacks: dict[tuple[Frame, ...], int] = {}
    timelines = []
    for os_tid, name, is_main, spans in threads:
        intervals, at_ns = [], start_ns
        for stack, length_ms in spans:
            end_ns = at_ns + length_ms * MILLISECOND_NS
            samples = (end_ns - start_ns) // sample_ns - (at_ns - start_ns) // sample_ns
            intervals.append(
                Interval(at_ns, end_ns - at_ns, stacks.setdefault(stack, len(stacks)), samples)
            )
            at_ns = end_ns
        timelines.append(records.ThreadTimeline(os_tid, name, is_main, tuple(intervals)))
    return records.RecordingTaken(
        identity=identity,
        start_ns=start_ns,
        end_ns=start_ns + duration_ns,
        rate_hz=SECOND_NS // sample_ns,
        samples=sum(i.samples for timeline in timelines for i in timeline.intervals) + torn,
        torn=torn,
        errors=0,
        clock_error_ns=2 * MILLISECOND_NS,
        cpu_ns=40 * MILLISECOND_NS,
        stacks=tuple(stacks),
        threads=tuple(timelines),
    )


def main_process(at_ns: int = STARTED_NS, *, rank: int | None = None) -> records.ProcessSeen:
    return records.ProcessSeen(MAIN, None, COMMAND, "main", rank, None, "3.11.7", at_ns)


def identity_of(pid: int | None = None) -> Identity:
    """Return which process has a PID; by default this one."""
    stat = processes.read_stat(pid or os.getpid())
    assert stat is not None
    return Identity(stat.pid, stat.start_ticks)


def this_process() -> records.Record:
    """Return the record of a run that has this process, too."""
    return records.ProcessSeen(
        identity_of(), None, ("pytest",), "helper", None, None, None, STARTED_NS
    )


def _put_all(writer: RunWriter, many: Iterable[records.Record]) -> None:
    for record in many:
        assert writer.put(record), writer.failure


def _first_records(at_ns: int, workers: int) -> list[records.Record]:
    found: list[records.Record] = [
        main_process(at_ns),
        records.EventHappened(at_ns, EventKind.STARTED, "python train.py --epochs 2", MAIN),
    ]
    found += [
        records.ProcessSeen(worker(n), MAIN, COMMAND, "worker", None, n, "3.11.7", at_ns)
        for n in range(1, workers + 1)
    ]
    return found


def _one_second(start_ns: int, second: int, workers: int) -> list[records.Record]:
    end_ns = start_ns + SECOND_NS
    main = (
        (MAIN_TID, "MainThread", True, STEP + STEP),
        (PIN_TID, "Thread-1 (_pin_memory_loop)", False, ((PIN_MEMORY, 1000),)),
    )
    found: list[records.Record] = [recording(MAIN, start_ns, main, torn=TORN_PER_SECOND)]
    found += [
        recording(
            worker(n), start_ns, ((worker(n).pid, "MainThread", True, WORKER_STEP + WORKER_STEP),)
        )
        for n in range(1, workers + 1)
    ]
    found.append(records.PointsTaken(end_ns, _points(second, workers)))
    bar = (
        f"{second % 100:3d}%|{'█' * (second % 20):20s}| {2 * (second + 1)}/400 "
        f"[00:{second % 60:02d}, 2.00it/s]"
    )
    found.append(records.OutputWritten(end_ns, f"\repoch 1: {bar}".encode()))
    return found


def _points(second: int, workers: int) -> tuple[records.Point, ...]:
    found = _process_points(MAIN, MAIN_TID, cpu_cores=0.6, rss_bytes=900e6 + 1e6 * second)
    for n in range(1, workers + 1):
        found += _process_points(worker(n), worker(n).pid, cpu_cores=0.97, rss_bytes=300e6)
    host = {
        "host_cpu_share": 0.64,
        "host_memory_used_bytes": 9e9,
        "host_memory_total_bytes": 16e9,
        "host_load_1min": 2.5,
        "profd_cpu_cores": 0.041,
        "profd_rss_bytes": 60e6,
    }
    return (*found, *(records.Point(name, value) for name, value in host.items()))


def _process_points(
    identity: Identity, tid: int, *, cpu_cores: float, rss_bytes: float
) -> list[records.Point]:
    values = {
        "cpu_cores": cpu_cores,
        "rss_bytes": rss_bytes,
        "threads": 4.0,
        "read_bytes_per_s": 1e6,
        "write_bytes_per_s": 2e3,
    }
    found = [records.Point(name, value, identity) for name, value in values.items()]
    return [*found, records.Point("cpu_cores", cpu_cores, identity, tid)]


def _last_records(
    at_ns: int, workers: int, exit_code: int | None, exit_signal: int | None
) -> list[records.Record]:
    found: list[records.Record] = [
        records.ProcessEnded(worker(n), at_ns, exit_code=0) for n in range(1, workers + 1)
    ]
    found.append(records.ProcessEnded(MAIN, at_ns, exit_code, exit_signal))
    found.append(records.OutputWritten(at_ns, b"\naccuracy 0.41\n"))
    found.append(records.EventHappened(at_ns, EventKind.ENDED, "python train.py --epochs 2", MAIN))
    found.append(records.RunEnded(at_ns, "target-exited", exit_code, exit_signal))
    return found
