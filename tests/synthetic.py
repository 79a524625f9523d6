"""Makes run files with known answers, through the writer that real sessions use.

The run trains at two steps a second, and each step spends the same time in the same stacks (``STEP``), sampled evenly
at 100 Hz. Over any whole number of seconds the shares of the main thread's time are therefore exactly ``PHASE_SHARES``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, Identity, Interval
from profd.daemon.store.writer import FrameDescription, RunWriter

RATE_HZ = 100
SAMPLE_NS = SECOND_NS // RATE_HZ
STARTED_NS = 1_795_176_000 * SECOND_NS
RUN_ID = "20261120-120000-cifar-3fa9"
COMMAND = ("python", "train.py", "--epochs", "2")
TORN_PER_SECOND = 2
MAIN = Identity(4242, 1000)
MAIN_TID, PIN_TID = 4242, 4250
LIBRARY = "/usr/lib/python3/site-packages/"
TRAIN = "/home/ada/cifar/train.py"
DATA = "/home/ada/cifar/augment.py"

SOURCES: dict[tuple[str, int], str] = {
    (TRAIN, 58): "for images, labels in loader:",
    (TRAIN, 60): "optimizer.zero_grad()",
    (TRAIN, 61): "logits = model(images)",
    (TRAIN, 62): "loss = criterion(logits, labels)",
    (TRAIN, 63): "loss.backward()",
    (TRAIN, 64): "optimizer.step()",
    (TRAIN, 65): "running_loss += loss.item()",
    (TRAIN, 90): "train_epoch(model, loader, optimizer, criterion)",
    (TRAIN, 96): "main()",
    (DATA, 21): "image = self.load(path)",
    (DATA, 33): "return elastic_deform(image, self.alpha)",
}
"""The text of the user's lines."""


def _library(function: str, module_path: str, line: int) -> Frame:
    return Frame(function, LIBRARY + module_path, line)


_ROOT = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90))
_CALL = (
    _library("Module._wrapped_call_impl", "torch/nn/modules/module.py", 1773),
    _library("Module._call_impl", "torch/nn/modules/module.py", 1784),
)
_RESNET = (
    *_CALL,
    _library("ResNet.forward", "torchvision/models/resnet.py", 285),
    _library("ResNet._forward_impl", "torchvision/models/resnet.py", 273),
)


def _step(line: int, *frames: Frame) -> tuple[Frame, ...]:
    return (*_ROOT, Frame("train_epoch", TRAIN, line), *frames)


DATA_WAIT = _step(
    58,
    _library("_BaseDataLoaderIter.__next__", "torch/utils/data/dataloader.py", 732),
    _library("_MultiProcessingDataLoaderIter._next_data", "torch/utils/data/dataloader.py", 1488),
    _library("_MultiProcessingDataLoaderIter._get_data", "torch/utils/data/dataloader.py", 1440),
    _library("_MultiProcessingDataLoaderIter._try_get_data", "torch/utils/data/dataloader.py", 1275),
    Frame("Queue.get", "/usr/lib/python3.11/queue.py", 180),
    Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 331),
)
CONV = _step(
    61,
    *_RESNET,
    *_CALL,
    _library("Conv2d.forward", "torch/nn/modules/conv.py", 548),
    _library("Conv2d._conv_forward", "torch/nn/modules/conv.py", 543),
)
BATCH_NORM = _step(
    61,
    *_RESNET,
    *_CALL,
    _library("_BatchNorm.forward", "torch/nn/modules/batchnorm.py", 193),
    _library("batch_norm", "torch/nn/functional.py", 2817),
)
LOSS = _step(
    62,
    *_CALL,
    _library("CrossEntropyLoss.forward", "torch/nn/modules/loss.py", 1385),
    _library("cross_entropy", "torch/nn/functional.py", 3458),
)
BACKWARD = _step(
    63,
    _library("Tensor.backward", "torch/_tensor.py", 630),
    _library("backward", "torch/autograd/__init__.py", 364),
    _library("_engine_run_backward", "torch/autograd/graph.py", 865),
)
OPTIMIZER = _step(
    64,
    _library("Optimizer.profile_hook_step.<locals>.wrapper", "torch/optim/optimizer.py", 517),
    _library("_use_grad_for_differentiable.<locals>._use_grad", "torch/optim/optimizer.py", 82),
    _library("Adam.step", "torch/optim/adam.py", 247),
    _library("_single_tensor_adam", "torch/optim/adam.py", 476),
)
ZERO_GRAD = _step(60, _library("Optimizer.zero_grad", "torch/optim/optimizer.py", 989))
SYNCHRONIZE = _step(65)

STEP: tuple[tuple[tuple[Frame, ...], int], ...] = (
    (DATA_WAIT, 200),
    (ZERO_GRAD, 10),
    (CONV, 70),
    (BATCH_NORM, 30),
    (LOSS, 30),
    (BACKWARD, 100),
    (OPTIMIZER, 40),
    (SYNCHRONIZE, 20),
)
"""What the main thread does in each step: (stack, milliseconds)."""
PHASE_SHARES = {
    "data wait": 0.40,
    "forward": 0.20,
    "backward": 0.20,
    "optimizer": 0.10,
    "loss": 0.06,
    "synchronize": 0.04,
}

PIN_MEMORY = (
    Frame("Thread._bootstrap", "/usr/lib/python3.11/threading.py", 995),
    Frame("Thread._bootstrap_inner", "/usr/lib/python3.11/threading.py", 1038),
    Frame("Thread.run", "/usr/lib/python3.11/threading.py", 975),
    _library("_pin_memory_loop", "torch/utils/data/_utils/pin_memory.py", 52),
    _library("_pin_memory_loop.<locals>.do_one_step", "torch/utils/data/_utils/pin_memory.py", 27),
    Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103),
    Frame("_ConnectionBase.recv_bytes", "/usr/lib/python3.11/multiprocessing/connection.py", 216),
)
_WORKER = (
    *_ROOT,
    Frame("train_epoch", TRAIN, 58),
    _library("DataLoader.__iter__", "torch/utils/data/dataloader.py", 500),
    _library("_MultiProcessingDataLoaderIter.__init__", "torch/utils/data/dataloader.py", 1160),
    Frame("BaseProcess.start", "/usr/lib/python3.11/multiprocessing/process.py", 121),
    Frame("Popen._launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 71),
    Frame("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
    _library("_worker_loop", "torch/utils/data/_utils/worker.py", 349),
    _library("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py", 52),
)
DEFORM = (*_WORKER, Frame("Photos.__getitem__", DATA, 33), Frame("elastic_deform", DATA, 12))
LOAD = (*_WORKER, Frame("Photos.__getitem__", DATA, 21), _library("ImageFile.load", "PIL/ImageFile.py", 293))
WORKER_STEP: tuple[tuple[tuple[Frame, ...], int], ...] = ((LOAD, 100), (DEFORM, 400))
"""What a DataLoader worker does in half a second."""

_VERSIONS = {"profd": "0.1.0", "python": "3.11.7", "py_spy": "0.4.1", "kernel": "6.1.0"}


def worker(ordinal: int) -> Identity:
    """Return the identity of a DataLoader worker, counted from 1."""
    return Identity(MAIN.pid + ordinal, MAIN.start_ticks + 100)


def describe(frame: Frame) -> FrameDescription:
    """Tell the synthetic user's files from the synthetic installation's."""
    is_library = not frame.file.startswith("/home/")
    module_path = frame.file.removeprefix(LIBRARY).removeprefix("/usr/lib/python3.11/")
    return FrameDescription(
        module_path=module_path.rsplit("/", 1)[-1] if not is_library else module_path,
        is_library=is_library,
        source=SOURCES.get((frame.file, frame.line)),
    )


def write_run(
    path: Path,
    *,
    live: bool = False,
    seconds: int = 20,
    workers: int = 2,
    exit_code: int | None = 0,
    exit_signal: int | None = None,
) -> Path:
    """Write a run of ``seconds`` and return its path.

    A live one is left in state ``live``, recorded by the process that calls this and up to date with the wall clock,
    with nobody writing to it; see ``live_run`` for one that grows.
    """
    started_ns = time.time_ns() - seconds * SECOND_NS if live else STARTED_NS
    writer = RunWriter(path, run_started(started_ns, live=live), describe)
    _put_all(writer, _first_records(started_ns, workers))
    for second in range(seconds):
        _put_all(writer, _one_second(started_ns + second * SECOND_NS, second, workers))
    if not live:
        end_ns = started_ns + seconds * SECOND_NS
        _put_all(writer, _last_records(end_ns, workers, exit_code, exit_signal))
    writer.close()
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
        """Write the end of the run."""
        end_ns = self.started_ns + self.seconds * SECOND_NS
        _put_all(self.writer, _last_records(end_ns, self._workers, exit_code, exit_signal))
        self.writer.close()

    def _wait_until_committed(self) -> None:
        deadline_s = time.monotonic() + 30
        nothing = threading.Event()
        with RunReader(self.path) as reader:
            while reader.info.end_ns < self.started_ns + self.seconds * SECOND_NS:
                assert time.monotonic() < deadline_s, self.writer.failure
                nothing.wait(0.005)
                reader.refresh()


@contextlib.contextmanager
def live_run(path: Path, *, seconds: int = 5, workers: int = 2) -> Iterator[LiveRun]:
    """Give a run that this process records, with ``seconds`` written up to now; close its writer at the end."""
    started_ns = time.time_ns() - seconds * SECOND_NS
    writer = RunWriter(path, run_started(started_ns, live=True), describe)
    try:
        _put_all(writer, _first_records(started_ns, workers))
        run = LiveRun(path, writer, started_ns, workers)
        run.advance(seconds)
        yield run
    finally:
        writer.close()


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
        recorder=_this_process() if live else Identity(4200, 900),
        versions=_VERSIONS,
        options={"rate_hz": RATE_HZ, "budget_percent": 10.0, "subprocesses": True, "duration_s": None},
    )


def recording(
    identity: Identity,
    start_ns: int,
    threads: Sequence[tuple[int, str, bool, Sequence[tuple[tuple[Frame, ...], int]]]],
    *,
    duration_ns: int = SECOND_NS,
    torn: int = 0,
    cpu_ns: int = 40 * MILLISECOND_NS,
) -> records.RecordingTaken:
    """Return a recording sampled evenly at 100 Hz.

    ``threads`` are (os_tid, name, is_main, [(stack, milliseconds)]), their stacks in order of time from ``start_ns``.
    """
    stacks: dict[tuple[Frame, ...], int] = {}
    timelines = []
    for os_tid, name, is_main, spans in threads:
        intervals, at_ns = [], start_ns
        for stack, length_ms in spans:
            end_ns = at_ns + length_ms * MILLISECOND_NS
            samples = (end_ns - start_ns) // SAMPLE_NS - (at_ns - start_ns) // SAMPLE_NS
            intervals.append(Interval(at_ns, end_ns - at_ns, stacks.setdefault(stack, len(stacks)), samples))
            at_ns = end_ns
        timelines.append(records.ThreadTimeline(os_tid, name, is_main, tuple(intervals)))
    return records.RecordingTaken(
        identity=identity,
        start_ns=start_ns,
        end_ns=start_ns + duration_ns,
        rate_hz=RATE_HZ,
        samples=sum(i.samples for timeline in timelines for i in timeline.intervals) + torn,
        torn=torn,
        errors=0,
        clock_error_ns=2 * MILLISECOND_NS,
        cpu_ns=cpu_ns,
        stacks=tuple(stacks),
        threads=tuple(timelines),
    )


def main_process(at_ns: int = STARTED_NS, *, rank: int | None = None) -> records.ProcessSeen:
    """Return the record of the training process."""
    return records.ProcessSeen(MAIN, None, COMMAND, "main", rank, None, "3.11.7", at_ns)


def _this_process() -> Identity:
    stat = processes.read_stat(os.getpid())
    assert stat is not None
    return Identity(stat.pid, stat.start_ticks)


def _put_all(writer: RunWriter, many: Sequence[records.Record]) -> None:
    for record in many:
        assert writer.put(record), writer.failure


def _first_records(at_ns: int, workers: int) -> list[records.Record]:
    found: list[records.Record] = [
        main_process(at_ns),
        records.EventHappened(at_ns, "started", "python train.py --epochs 2", MAIN),
    ]
    found += [
        records.ProcessSeen(worker(n), MAIN, COMMAND, "worker", None, n, "3.11.7", at_ns) for n in range(1, workers + 1)
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
        recording(worker(n), start_ns, ((worker(n).pid, "MainThread", True, WORKER_STEP + WORKER_STEP),))
        for n in range(1, workers + 1)
    ]
    found.append(records.PointsTaken(end_ns, _points(second, workers)))
    bar = f"{second % 100:3d}%|{'█' * (second % 20):20s}| {2 * (second + 1)}/400 [00:{second % 60:02d}, 2.00it/s]"
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


def _process_points(identity: Identity, tid: int, *, cpu_cores: float, rss_bytes: float) -> list[records.Point]:
    values = {
        "cpu_cores": cpu_cores,
        "rss_bytes": rss_bytes,
        "threads": 4.0,
        "read_bytes_per_s": 1e6,
        "write_bytes_per_s": 2e3,
    }
    found = [records.Point(name, value, identity) for name, value in values.items()]
    return [*found, records.Point("cpu_cores", cpu_cores, identity, tid)]


def _last_records(at_ns: int, workers: int, exit_code: int | None, exit_signal: int | None) -> list[records.Record]:
    found: list[records.Record] = [records.ProcessEnded(worker(n), at_ns, exit_code=0) for n in range(1, workers + 1)]
    found.append(records.ProcessEnded(MAIN, at_ns, exit_code, exit_signal))
    found.append(records.OutputWritten(at_ns, b"\naccuracy 0.41\n"))
    found.append(records.EventHappened(at_ns, "ended", "python train.py --epochs 2", MAIN))
    found.append(records.RunEnded(at_ns, "target-exited", exit_code, exit_signal))
    return found
