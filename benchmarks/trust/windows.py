"""What a window of a running process costs it: wrong bits (there must be none), and how long it
stands still.

Run on a quiet machine: ``python benchmarks/run.py windows [--windows 100] [--python PATH ...]``,
about two minutes for each interpreter, which needs torch; writes its section of
``docs/measurements.md``. ``tests/programs/bitexact.py`` compares its matrix products and
convolutions every round, and a thread of it beats every two milliseconds: how long it stands still
is the longest pause between two beats, with gdb's and the profiler's start in it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
from typing import NamedTuple

import msgspec
from common.measurements import write_section
from support.folders import PROGRAMS

from profd.daemon import processes
from profd.daemon.clock import Clock
from profd.daemon.store.records import Identity, Record, WindowTaken
from profd.daemon.windows.injection import Injection, helper_for
from profd.daemon.windows.request import WindowRequest
from profd.daemon.windows.taking import WindowTaker

PROGRAM = PROGRAMS / "bitexact.py"
STILL_LIMIT_S = 0.5
_LOOK_INTERVAL_S = 0.05
_AT_REST_S = 1.0
"""Between two windows the pauses of the process alone are read for so long."""

_WORST = 5


class Answer(msgspec.Struct, frozen=True):
    """What the process says of itself since it was last asked."""

    rounds: int
    wrong: int
    still_s: float


class Outcome(NamedTuple):
    """What windows of one interpreter came to.

    Times are the longest pause of each window, and of each time between.
    """

    version: str
    source: str
    failed: int
    rounds: int
    wrong: int
    still_s: list[float]
    at_rest_s: list[float]

    @property
    def is_good(self) -> bool:
        """Whether it kept to what is promised."""
        return not self.failed and not self.wrong and max(self.still_s) < STILL_LIMIT_S

    def worst(self) -> str:
        """Return the longest pauses, each with the number of its window: the first one may have
        more to set up.
        """
        numbered = sorted(enumerate(self.still_s, 1), key=lambda pair: -pair[1])
        return ", ".join(
            f"{still_s:.3f} s (window {number})" for number, still_s in numbered[:_WORST]
        )

    def row(self) -> str:
        """Return the outcome as a row of a table."""
        still = sorted(self.still_s)
        return (
            f"| {self.version} | {self.source} | {len(still)} | {self.failed} | {self.rounds:,} | "
            f"{self.wrong} | {statistics.median(still):.3f} s | {still[-1]:.3f} s | "
            f"{statistics.median(self.at_rest_s):.3f} s | {max(self.at_rest_s):.3f} s |"
        )


class Target:
    """The program, in an interpreter of its own."""

    def __init__(self, python: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [python, str(PROGRAM)],
            stdin=pipe,
            stdout=pipe,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        stat = processes.read_stat(self.process.pid)
        assert stat is not None
        self.identity = Identity(stat.pid, stat.start_ticks)

    def ask(self) -> Answer:
        """Return what has been since the last time."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return msgspec.json.decode(self.process.stdout.readline(), type=Answer)


async def take_window(target: Target, way: Injection) -> WindowTaken:
    """Take one window and return what came of it."""
    records: list[Record] = []
    WindowTaker(Clock(), records.append).begin({target.identity: way}, WindowRequest())
    while True:
        for record in records:
            if isinstance(record, WindowTaken):
                return record
        await asyncio.sleep(_LOOK_INTERVAL_S)


async def measure(python: str, windows: int) -> Outcome:
    """Take windows of one process, one after the other."""
    target = Target(python)
    version = processes.python_version(target.identity.pid) or ""
    way = Injection(helper_for(version), Clock())
    taken, during, between = [], [], []
    try:
        for _ in range(windows):
            target.ask()
            await asyncio.sleep(_AT_REST_S)
            between.append(target.ask())
            taken.append(await take_window(target, way))
            during.append(target.ask())
    finally:
        target.process.communicate()
    answers = during + between
    return Outcome(
        version=version,
        source=way.source,
        failed=sum(bool(window.error) for window in taken),
        rounds=sum(answer.rounds for answer in answers),
        wrong=sum(answer.wrong for answer in answers),
        still_s=[answer.still_s for answer in during],
        at_rest_s=[answer.still_s for answer in between],
    )


def report(outcomes: list[Outcome]) -> None:
    """Write the section of the measurements."""
    write_section(
        "Windows of running processes",
        "`benchmarks/trust/windows.py`: windows of five steps, started inside of a process that was not "
        "armed and that compares its matrix products and convolutions bit for bit in every round. "
        "How long it stands still is the longest pause of a thread that beats every 2 ms, per "
        "window; at rest is the same for one second without one.",
        [
            "| Python | by | windows | failed | rounds | wrong | still, median | longest | at "
            "rest, median | longest |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(outcome.row() for outcome in outcomes),
        ],
    )


def main() -> int:
    """Measure each interpreter; returns 1 where one did not keep to what is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument(
        "--python", action="append", help="an interpreter that has torch; by default this one"
    )
    options = parser.parse_args()
    outcomes = [
        asyncio.run(measure(python, options.windows))
        for python in options.python or [sys.executable]
    ]
    for outcome in outcomes:
        print(outcome.row())
        print("windows with the longest pauses:", outcome.worst())
    report(outcomes)
    return 0 if all(outcome.is_good for outcome in outcomes) else 1
