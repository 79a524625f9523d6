"""Write the run file of a long training without waiting for it: ranks with GPUs, through the writer
of real sessions.

    python benchmarks/run.py longrun --hours 24 --ranks 4 -o long.profd

Density is that of a real run of ResNet-18 under the default budget: about 60 samples a second of
each rank, of which each two or three stand in one stack for as many samples, and readings of GPU,
CPU and memory as the collectors take them. Stacks come from a fixed set, durations by chance, the
same for the same ``--seed``.
"""

from __future__ import annotations

import argparse
import random
import threading
from collections.abc import Iterator
from pathlib import Path

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store import records
from profd.daemon.store.records import Frame, FrameDescription, Identity, Interval
from profd.daemon.store.writer import RunWriter

STARTED_NS = 1_795_176_000 * SECOND_NS
RECORDING_S = 10
_RECORDER = Identity(4200, 900)
SAMPLE_NS = 17 * MILLISECOND_NS
GPU_READINGS_PER_S = 6
_COMMAND = ("python", "train.py", "--epochs", "90")
_TRAIN, _NET, _ADAM = "/srv/train.py", "/srv/net.py", "/lib/torch/optim/adam.py"
_ROOT = (Frame("<module>", _TRAIN, 96), Frame("main", _TRAIN, 90))
_MODULE = Frame("Module._call_impl", "/lib/torch/nn/modules/module.py", 1773)

Stack = tuple[Frame, ...]


def _step(line: int, *callees: Frame) -> Stack:
    return (*_ROOT, Frame("train_epoch", _TRAIN, line), *callees)


def _layers() -> list[Stack]:
    """Return the stacks of a forward pass: a block calls its convolutions and norms, each at a line
    of its own.
    """
    found = []
    for block in range(8):
        outer = (
            _MODULE,
            Frame("Net.forward", _NET, 40 + block),
            _MODULE,
            Frame("Block.forward", _NET, 20 + block % 4),
        )
        for name, line in (
            ("Conv2d.forward", 548),
            ("BatchNorm2d.forward", 193),
            ("ReLU.forward", 143),
        ):
            file = f"/lib/torch/nn/modules/{name.split('.', maxsplit=1)[0].lower()}.py"
            found += [_step(61, *outer, _MODULE, Frame(name, file, line + at)) for at in range(3)]
    return found


_WAIT = _step(
    58, Frame("_MultiProcessingDataLoaderIter._try_get_data", "/lib/torch/utils/data/dataloader.py", 1275),
    Frame("Condition.wait", "/lib/threading.py", 331),
)  # fmt: skip
_FORWARD = _layers()
_BACKWARD = _step(63, Frame("_engine_run_backward", "/lib/torch/autograd/graph.py", 865))
_OPTIMIZER = [_step(64, Frame("_single_tensor_adam", _ADAM, 400 + line)) for line in range(60)]
_LOSS = _step(65)
_PIN = (Frame("_pin_memory_loop", "/lib/torch/utils/data/_utils/pin_memory.py", 30),)
_LOADS = [
    (
        Frame("_worker_loop", "/lib/torch/utils/data/_utils/worker.py", 309),
        Frame("augment", "/srv/data.py", 10 + line),
    )
    for line in range(12)
]
STACKS = (_WAIT, _BACKWARD, _LOSS, _PIN, *_FORWARD, *_OPTIMIZER, *_LOADS)
_NUMBER = {stack: number for number, stack in enumerate(STACKS)}
_SOURCES = {58: "for images, labels in loader:", 61: "logits = model(images)", 63: "loss.backward()",
            64: "optimizer.step()", 65: "running_loss += loss.item()", 90: "train_epoch(model, loader)"}  # fmt: skip


def describe(frame: Frame) -> FrameDescription:
    """Return what a session would read of a frame's file."""
    is_library = frame.file.startswith("/lib/")
    source = _SOURCES.get(frame.line) if frame.file == _TRAIN else None
    return FrameDescription(
        frame.file.removeprefix("/lib/").removeprefix("/srv/"), is_library, source
    )


def write_long_run(
    path: Path, *, seconds: int, ranks: int, workers: int = 0, seed: int = 1
) -> Path:
    """Write a run of so many seconds with ``workers`` of each rank, and return its path."""
    writer = RunWriter(path, run_started(), describe)
    full = threading.Event()
    for record in _records(seconds, ranks, workers, random.Random(seed)):
        while not writer.put(record):
            if writer.failure:
                raise SystemExit(writer.failure)
            full.wait(0.005)  # the writer's queue is bounded; what runs ahead of it waits
    writer.close()
    return path


def run_started(started_ns: int = STARTED_NS, recorder: Identity = _RECORDER) -> records.RunStarted:
    """Return the first record of a run."""
    return records.RunStarted(
        id="20261120-120000-long-3fa9", name="long", mode="launched", target=identity(0), command=_COMMAND,
        cwd="/srv", host="node-1", user="ada", started_ns=started_ns, recorder=recorder,
        versions={"profd": "0.1.0", "python": "3.11.7"}, options={"rate_hz": 100, "budget_percent": 10.0},
    )  # fmt: skip


def identity(rank: int) -> Identity:
    """Return the main process of a rank."""
    return Identity(5000 + rank, 1000)


def _records(
    seconds: int, ranks: int, workers: int, chance: random.Random
) -> Iterator[records.Record]:
    for rank in range(ranks):
        yield records.ProcessSeen(
            identity(rank), None, _COMMAND, "main", rank, None, "3.11.7", STARTED_NS
        )
        yield records.EventHappened(STARTED_NS, EventKind.STARTED, f"rank {rank}", identity(rank))
        for number in range(workers):
            own = _worker(rank, number)
            yield records.ProcessSeen(
                own, identity(rank), _COMMAND, "worker", rank, number + 1, "3.11.7", STARTED_NS
            )
    steps = 0.0
    for second in range(0, seconds, RECORDING_S):
        for rank in range(ranks):
            yield recording(rank, STARTED_NS + second * SECOND_NS, chance)
            if workers:
                turn = second // RECORDING_S % workers
                yield _turn(_worker(rank, turn), STARTED_NS + second * SECOND_NS, chance)
        for later in range(RECORDING_S):
            steps += 4
            yield from _readings(second + later, ranks, workers, steps, chance)
    end_ns = STARTED_NS + seconds * SECOND_NS
    for rank in range(ranks):
        for number in range(workers):
            yield records.ProcessEnded(_worker(rank, number), end_ns, exit_code=0)
        yield records.ProcessEnded(identity(rank), end_ns, exit_code=0)
    yield records.RunEnded(end_ns, "target-exited", exit_code=0)


def recording(
    rank: int, start_ns: int, chance: random.Random, duration_ns: int = RECORDING_S * SECOND_NS
) -> records.RecordingTaken:
    """Return a recording of a rank's main process."""
    own, end_ns = identity(rank), start_ns + duration_ns
    main = tuple(_intervals(start_ns, end_ns, chance))
    samples = sum(interval.samples for interval in main)
    pin = (Interval(start_ns, end_ns - start_ns, _NUMBER[_PIN], samples),)
    return records.RecordingTaken(
        identity=own, start_ns=start_ns, end_ns=end_ns, rate_hz=60, samples=2 * samples + 4, torn=4, errors=0,
        clock_error_ns=2 * MILLISECOND_NS, cpu_ns=300 * MILLISECOND_NS, stacks=STACKS,
        threads=(
            records.ThreadTimeline(own.pid, "MainThread", True, main),
            records.ThreadTimeline(own.pid + 100, "Thread-1 (_pin_memory_loop)", False, pin),
        ),
    )  # fmt: skip


def _worker(rank: int, number: int) -> Identity:
    return Identity(6000 + 100 * rank + number, 1100)


def _turn(identity: Identity, start_ns: int, chance: random.Random) -> records.RecordingTaken:
    """Return what is seen of a worker in its turn: 20 samples a second, each two in one stack."""
    length_ns = SECOND_NS // 10
    loaded = tuple(
        Interval(start_ns + number * length_ns, length_ns, _NUMBER[chance.choice(_LOADS)], 2)
        for number in range(RECORDING_S * 10)
    )
    return records.RecordingTaken(
        identity=identity, start_ns=start_ns, end_ns=start_ns + RECORDING_S * SECOND_NS, rate_hz=20, torn=0, errors=0,
        samples=2 * len(loaded), clock_error_ns=2 * MILLISECOND_NS, cpu_ns=60 * MILLISECOND_NS, stacks=STACKS,
        threads=(records.ThreadTimeline(identity.pid, "MainThread", True, loaded),),
    )  # fmt: skip


def _worker_points(identity: Identity, chance: random.Random) -> list[records.Point]:
    values = {
        "cpu_cores": chance.random(),
        "rss_bytes": 5e8 + chance.uniform(0, 1e7),
        "threads": 3.0,
    }
    return [records.Point(name, value, identity) for name, value in values.items()]


def _intervals(start_ns: int, end_ns: int, chance: random.Random) -> Iterator[Interval]:
    """Yield the intervals of steps of about a quarter of a second: wait, forward, backward,
    optimizer, loss.
    """
    at_ns = start_ns
    while at_ns < end_ns:
        stacks = [
            (_WAIT, chance.randint(2, 6)),
            *((chance.choice(_FORWARD), 1) for _ in range(4)),
            (_BACKWARD, 4),
        ]
        stacks += [(chance.choice(_OPTIMIZER), 1) for _ in range(2)]
        for stack, samples in [*stacks, (_LOSS, 1)]:
            length_ns = min(samples * SAMPLE_NS, end_ns - at_ns)
            if length_ns > 0:
                yield Interval(at_ns, length_ns, _NUMBER[stack], samples)
            at_ns += length_ns


def _readings(
    second: int, ranks: int, workers: int, steps: float, chance: random.Random
) -> Iterator[records.Record]:
    """Yield what the collectors read in a second."""
    at_ns = STARTED_NS + (second + 1) * SECOND_NS
    for part in range(GPU_READINGS_PER_S):
        part_ns = at_ns - SECOND_NS + (part + 1) * SECOND_NS // GPU_READINGS_PER_S
        busy = [
            records.Point("gpu_utilization_share", _busy(chance), device=f"gpu{rank}")
            for rank in range(ranks)
        ]
        yield records.PointsTaken(part_ns, tuple(busy))
    found = [
        records.Point("host_cpu_share", chance.random()),
        records.Point("profd_cpu_cores", 0.1),
    ]
    for rank in range(ranks):
        own, device = identity(rank), f"gpu{rank}"
        found += [
            records.Point("cpu_cores", chance.uniform(0.6, 1.4), own),
            records.Point("cpu_cores", chance.uniform(0.3, 1.0), own, own.pid),
            records.Point("rss_bytes", 4e9 + 2e3 * second + chance.uniform(0, 5e7), own),
            records.Point("gpu_memory_used_bytes", 12e9 + chance.uniform(0, 1e9), device=device),
            records.Point(
                "gpu_process_memory_bytes", 11e9 + chance.uniform(0, 1e9), own, device=device
            ),
            records.Point("gpu_power_watts", chance.uniform(150, 400), device=device),
        ]
        for number in range(workers):
            found += _worker_points(_worker(rank, number), chance)
        if not second % 5:
            found += [
                records.Point("step_count", steps, own),
                records.Point("step_count_error", 0.1, own),
            ]
    yield records.PointsTaken(at_ns, tuple(found))


def _busy(chance: random.Random) -> float:
    """Return a utilization that is 0 in a fifth of the readings."""
    return 0.0 if chance.random() < 0.2 else chance.uniform(0.3, 1.0)


def main() -> None:
    """Write the run that the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="of each rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    seconds = round(options.hours * 3600)
    path = write_long_run(
        options.output,
        seconds=seconds,
        ranks=options.ranks,
        workers=options.workers,
        seed=options.seed,
    )
    print(f"{path}: {path.stat().st_size / 1e6:,.0f} MB")
