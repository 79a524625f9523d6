"""What reading GPUs costs: 8 GPUs with 16 processes at the default rate, read and written to a run
file.

Run on a quiet machine: ``python benchmarks/run.py gpu_cost [--seconds 60] [--runs 5]``; writes its
section of ``docs/measurements.md``. NVML is the tests' library, which counts the time that it takes
itself; a minute has one estimate of the driver's clock. ``--keep FILE`` adds the runs to a file of
earlier ones, and reports all. On a machine with GPUs ``--real`` takes the driver's: all GPUs that
there are, with whoever computes on them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pynvml
from common.measurements import write_section
from support.folders import BENCHMARKS

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.collector import GpuCollector
from profd.daemon.gpu.users import ProcessTraces
from profd.daemon.store.records import FrameDescription, Identity, PointsTaken, Record, RunStarted
from profd.daemon.store.writer import RunWriter

GPUS, PROCESSES = 8, 16
SETTLING_S = 3.0  # loading the driver, and the readings that find out what it lacks
_PER_PROCESS_BYTES = 5 << 30
_METRICS = (1, 2, 3, 5, 10, 20, 21, 60, 61)


class Cost(NamedTuple):
    """The cores that reading took, and writing, the library's own time among the former.

    And the values a second.
    """

    reading: float
    writing: float
    library: float
    points_per_s: float


def main() -> None:
    """Measure some runs and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(*measure(arguments.seconds))
        return
    costs = [measure_apart(arguments.seconds, real=arguments.real) for _ in range(arguments.runs)]
    if arguments.keep:
        with arguments.keep.open("a") as file:
            file.writelines(json.dumps(cost) + "\n" for cost in costs)
        costs = [Cost(*json.loads(line)) for line in arguments.keep.read_text().splitlines()]
    report(costs, arguments.seconds, real=arguments.real)


def measure_apart(seconds: int, *, real: bool) -> Cost:
    """Measure in a process of its own, since a library is found when a process starts."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {} if real else scenario(Path(folder))
        words = [
            sys.executable,
            str(BENCHMARKS / "run.py"),
            "gpu_cost",
            "--one",
            "--seconds",
            str(seconds),
        ]
        ended = subprocess.run(
            words, env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
    return Cost(*map(float, ended.stdout.split()))


def scenario(folder: Path) -> dict[str, str]:
    """Build the library and write its scenario.

    Returns the variables by which a process gets them.
    """
    from support.gpusim import SimulatedDriver, build

    driver = SimulatedDriver(build(folder), folder, time.time_ns())
    for number in range(GPUS):
        device = f"gpu{number}"
        driver.add_gpu(
            device, memory_used_bytes=40 << 30, memory_total_bytes=80 << 30, power_watts=600
        )
        for name, value in (
            ("power_limit_watts", 700),
            ("temperature_celsius", 60),
            ("throttle_reasons_mask", 4),
        ):
            driver.add(name, value, device)
        for name in ("sm_clock_hz", "memory_clock_hz"):
            driver.add(name, 1.98e9, device)
        driver.add("utilization_share", 0.9, device)
        for metric in _METRICS:
            driver.add("gpm", 50, device, metric)
        for pid in range(1000 + number, 1000 + PROCESSES, GPUS):
            driver.add("process_memory_bytes", _PER_PROCESS_BYTES, device, pid)
    environment = {**driver.environment, "FAKE_NVML_READ_ONCE": "1"}
    del environment["FAKE_NVML_CALLS"]
    return environment


def measure(seconds: int) -> Cost:
    """Read every GPU for ``seconds`` and return what that took of this process."""
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        writer = RunWriter(
            Path(folder) / "run.profd",
            started(clock),
            lambda frame: FrameDescription("", False, None),
        )
        points = 0

        def put(record: Record) -> None:
            nonlocal points
            points += len(record.points) if isinstance(record, PointsTaken) else 0
            writer.put(record)

        ProcessTraces.sees_host_pids = lambda traces: True  # type: ignore[method-assign]  # these processes are made up
        collector = GpuCollector(clock, put, everything=True)
        collector.take(Identity(1000 + number, 1) for number in range(PROCESSES))
        collector.start()
        nothing = threading.Event()
        nothing.wait(SETTLING_S)
        before = (
            thread_s("profd-gpu"),
            thread_s("profd-writer"),
            library_s(),
            points,
            time.monotonic(),
        )
        nothing.wait(seconds)
        after = (
            thread_s("profd-gpu"),
            thread_s("profd-writer"),
            library_s(),
            points,
            time.monotonic(),
        )
        collector.close()
        writer.close()
    *spent, wall_s = (one - other for one, other in zip(after, before, strict=True))
    return Cost(*(one / wall_s for one in spent))


def thread_s(name: str) -> float:
    """Return the CPU time of the threads whose names begin so: those that ask the driver, or the
    writer's.
    """
    meant = (thread.ident for thread in threading.enumerate() if thread.name.startswith(name))
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(ident))
        for ident in meant
        if ident is not None
    )


def library_s() -> float:
    """Return how long the tests' library ran; 0 of a driver, which does not tell."""
    spent_ns = getattr(pynvml.nvmlLib, "fake_nvml_spent_ns", None)
    if spent_ns is None:
        return 0.0
    spent_ns.restype = ctypes.c_ulonglong
    return float(spent_ns()) / SECOND_NS


def started(clock: Clock) -> RunStarted:
    """Return the first record of a run of nothing."""
    return RunStarted(
        id="gpu-cost",
        name="gpu-cost",
        mode="attached",
        target=Identity(1000, 1),
        command=(),
        cwd="/",
        host="",
        user="",
        started_ns=clock.now_ns(),
        recorder=Identity(os.getpid(), 0),
        versions={},
        options={},
    )


def report(costs: list[Cost], seconds: int, *, real: bool) -> None:
    """Print the medians and write the section."""
    columns = (
        *([cost.reading for cost in costs], [cost.writing for cost in costs]),
        [cost.reading + cost.writing for cost in costs],
        [cost.reading + cost.writing - cost.library for cost in costs],
    )
    shares = " | ".join(
        f"{statistics.median(one):.2%} [{min(one):.2%}, {max(one):.2%}]" for one in columns
    )
    points_per_s = statistics.median(cost.points_per_s for cost in costs)
    what = (
        "the GPUs of this machine"
        if real
        else f"{GPUS} GPUs, {PROCESSES} processes, from a scenario"
    )
    lines = [
        "| | reading, share of one core | writing | both | both without the library | values a "
        "second |",
        "|---|---|---|---|---|---|",
        f"| {what} | {shares} | {points_per_s:.0f} |",
    ]
    print("\n".join(lines))
    write_section(
        "What reading GPUs costs" + (" on a real driver" if real else ""),
        f"`benchmarks/gpu/gpu_cost.py{' --real' if real else ''}`: {len(costs)} runs of {seconds} s "
        "at the default rate, read through pynvml, GPM every two seconds, and written to a run "
        "file; medians of the threads' CPU time [least, most]. "
        + (
            ""
            if real
            else "The library in the driver's place counts by the monotonic clock how long it runs."
        ),
        lines,
    )
