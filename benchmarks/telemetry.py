"""What counters of 16 processes and of their machine cost at default rates, read and written to a
run file.

Run on a quiet machine: ``python benchmarks/telemetry.py [--seconds 20] [--runs 3] [--quick]``; 75
seconds, that is each run's and three more, and some for the processes to start; quick five seconds.
Writes its section of ``docs/measurements.md``, unless quick; ends with 1 where it is more than half
a percent of a core. Readings a second apart find caches cold; quick ones follow each other on a
clock that the benchmark moves, and cost less for that.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from measurements import write_section

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.machine.collector import HostCollector
from profd.daemon.store.records import (
    FrameDescription,
    Identity,
    PointsTaken,
    ProcessSeen,
    Record,
    RunStarted,
)
from profd.daemon.store.writer import RunWriter

PROCESSES, THREADS = 16, 4
LIMIT_CORES = 0.005
SETTLING = 3  # readings that start threads and find out what there is
# As many maps as a program with torch has, some memory, and threads that wait.
LOAD = f"""
import ctypes, mmap, os, sys, threading
maps = [mmap.mmap(-1, 1 << 16, prot=mmap.PROT_READ | (mmap.PROT_WRITE if n % 2 else 0)) for n in range(800)]
held = bytearray(b"x") * (200 << 20)
for _ in range({THREADS - 1}):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


class Cost(NamedTuple):
    """The cores that reading and writing took, and how many values a second came of it."""

    cores: float
    points_per_s: float


class MovedClock(Clock):
    """A clock that a reading moves by a second, whatever it took."""

    def __init__(self) -> None:
        self.at_ns = time.time_ns()

    def now_ns(self) -> int:
        """Return the time that it was moved to."""
        return self.at_ns

    def wall_jump_ns(self) -> int:
        """Return that there is none."""
        return 0

    def suspended_ns(self) -> int:
        """Return 0: it never sleeps."""
        return 0


class Sink:
    """Hands records on to a writer, and counts values."""

    def __init__(self, writer: RunWriter) -> None:
        self.points = 0
        self._writer = writer

    def __call__(self, record: Record) -> bool:
        """Take a record."""
        self.points += len(record.points) if isinstance(record, PointsTaken) else 0
        return self._writer.put(record)


def main() -> int:
    """Measure some runs and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="as many readings on a moved clock, once; writes nothing down",
    )
    options = parser.parse_args()
    loads = [start_load() for _ in range(PROCESSES)]
    try:
        identities = [identity_of(load) for load in loads]
        costs = [
            asyncio.run(measure(identities, options.seconds, quick=options.quick))
            for _ in range(1 if options.quick else options.runs)
        ]
    finally:
        for load in loads:
            load.kill()
            load.wait()
    return report(costs, options.seconds, quick=options.quick)


def start_load() -> subprocess.Popen[str]:
    """Start a process that holds memory and waits, and return when it does."""
    load = subprocess.Popen(
        [sys.executable, "-c", LOAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert load.stdout is not None
    assert load.stdout.readline() == "ready\n"
    return load


def identity_of(load: subprocess.Popen[str]) -> Identity:
    """Return the identity of a process that runs."""
    stat = processes.read_stat(load.pid)
    assert stat is not None
    return Identity(stat.pid, stat.start_ticks)


async def measure(identities: list[Identity], seconds: int, *, quick: bool) -> Cost:
    """Read for so many seconds, real or moved, and return what that took without its start."""
    moved = MovedClock()
    clock: Clock = moved if quick else Clock()
    threads = {
        identity: frozenset(processes.thread_ids(identity.pid).values()) for identity in identities
    }
    with tempfile.TemporaryDirectory() as folder:
        started = run_of(identities[0], clock)
        writer = RunWriter(
            Path(folder) / "a.profd", started, lambda frame: FrameDescription("", False, None)
        )
        for identity in identities:
            writer.put(
                ProcessSeen(identity, None, ("load",), "worker", None, None, None, clock.now_ns())
            )
        sink = Sink(writer)
        collector = HostCollector(clock, sink)
        before_s, before_points = 0.0, 0
        for reading in range(seconds + SETTLING):
            if reading == SETTLING:
                before_s, before_points = time.process_time(), sink.points
            await collector.collect(identities, threads, patience_s=30)
            moved.at_ns += SECOND_NS
            await asyncio.sleep(0 if quick else 1)
        spent_s, points = time.process_time() - before_s, sink.points - before_points
        collector.close()
        writer.close()
        return Cost(spent_s / seconds, points / seconds)


def run_of(target: Identity, clock: Clock) -> RunStarted:
    """Return the first record of a run of this benchmark."""
    return RunStarted(
        id="telemetry",
        name="telemetry",
        mode="attached",
        target=target,
        command=("load",),
        cwd="/",
        host="here",
        user="me",
        started_ns=clock.now_ns(),
        recorder=Identity(os.getpid(), 0),
        versions={},
        options={},
    )


def report(costs: list[Cost], seconds: int, *, quick: bool) -> int:
    """Print what was measured, write it down unless quick, and return the exit code."""
    cores = statistics.median(cost.cores for cost in costs)
    lines = [
        "| CPU, share of one core | least and most | values a second |",
        "|---|---|---|",
        f"| {cores:.2%} | {min(cost.cores for cost in costs):.2%} to "
        f"{max(cost.cores for cost in costs):.2%} | {costs[-1].points_per_s:.0f} |",
    ]
    print("\n".join(lines))
    if not quick:
        write_section(
            "Counters of processes and machine",
            f"`benchmarks/telemetry.py`: {len(costs)} times {seconds} s of readings at default "
            f"rates, {PROCESSES} processes of {THREADS} threads with 200 MB in 800 maps each, "
            "written to a run file; CPU of the process that reads and writes, all its threads, "
            "without its start; medians.",
            lines,
        )
    return int(cores > LIMIT_CORES)


if __name__ == "__main__":
    sys.exit(main())
