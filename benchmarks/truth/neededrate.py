"""Whether shares stay true while the sampling rate follows the need.

``python benchmarks/run.py neededrate [--minutes 8] [--runs 1]``; writes its section of
``docs/measurements.md``. A program of known phases keeps a diary: a mixture of three functions with
bursts, another mixture from the fourth minute on, and a function that comes anew in each third
minute. profd is attached without options; each minute's shares are compared with the diary.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.measurements import write_section
from common.recorders import Profd

from profd.daemon.analyze.confidence import margin
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

FUNCTIONS = ("load", "forward", "update", "evaluate")
PROGRAM = """
import json, random, sys, time
diary = open(sys.argv[1], "w", buffering=1)  # the end of the run is in it, too
chance = random.Random(7)
begun = time.monotonic()

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

def load(seconds): spin(seconds)
def forward(seconds): spin(seconds)
def update(seconds): spin(seconds)
def evaluate(seconds): spin(seconds)

def note(function, seconds):
    before = time.time_ns()
    function(seconds)
    diary.write(json.dumps([function.__name__, before, time.time_ns()]) + "\\n")

print("ready", flush=True)
while True:
    at = time.monotonic() - begun
    minute = int(at // 60)
    if minute % 3 == 2 and at % 60 < 12:
        note(evaluate, 0.05)
    else:
        wait = 0.02 if minute < 3 else 0.06
        burst = 5 if at % 20 < 2 else 1
        note(load, burst * wait * chance.uniform(0.5, 1.5))
        note(forward, 0.05)
        note(update, 0.03)
"""
METHOD = (
    "`benchmarks/truth/neededrate.py`: profd attached without options for {minutes} minutes to a program "
    "of one thread that writes down when it is in which of four functions; runs: {runs}. Shares "
    "of each minute, total time, against that diary. Rate: samples a second that were due, on the "
    "mean of the minute. Error: the largest of the four distances from the truth, in points. "
    "Stated: the largest of the four margins. Held: how many of the four are within their margin."
)


class Minute(NamedTuple):
    """One minute of a run: its rate, and of each function the true share, the stated one and its
    margin.
    """

    rate_hz: float
    shares: tuple[tuple[float, float, float], ...]

    @property
    def error(self) -> float:
        return max(abs(true - stated) for true, stated, _ in self.shares)

    @property
    def held(self) -> int:
        return sum(abs(true - stated) <= widest for true, stated, widest in self.shares)


def measure(minutes: int) -> list[Minute]:
    """Record the program for some minutes and compare each of them."""
    with tempfile.TemporaryDirectory() as folder:
        diary, run_file = Path(folder) / "diary", Path(folder) / "run.profd"
        words = [sys.executable, "-c", PROGRAM, str(diary)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            program.stdout.readline()
            try:
                Profd.attach(program.pid, run_file, "--duration", str(60 * minutes)).wait()
            finally:
                program.kill()
        noted = [json.loads(line) for line in diary.read_text().splitlines() if line[-1:] == "]"]
        return [_minute(run_file, noted, number) for number in range(minutes)]


def _minute(run_file: Path, noted: Sequence[tuple[str, int, int]], number: int) -> Minute:
    words = [sys.executable, "-m", "profd", "summary", str(run_file), "--json"]
    words += ["--from", str(60 * number), "--to", str(60 * number + 60)]
    summary = json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    stated = {one["function"]: one for one in summary["functions"]}
    with RunReader(run_file) as reader:
        from_ns = reader.info.started_ns + 60 * number * SECOND_NS
        to_ns = from_ns + 60 * SECOND_NS
        due = length_ns = 0.0
        for row in reader.recordings():
            inside_ns = max(min(row.end_ns, to_ns) - max(row.start_ns, from_ns), 0)
            due, length_ns = due + row.rate_hz * inside_ns, length_ns + inside_ns
    spent = Counter[str]()
    for name, before_ns, after_ns in noted:
        spent[name] += max(min(after_ns, to_ns) - max(before_ns, from_ns), 0)
    none = {"total_share": 0.0, "total_error": 0.0}
    shares = tuple(
        (
            spent[name] / spent.total(),
            stated.get(name, none)["total_share"],
            margin(stated.get(name, none)["total_error"]),
        )
        for name in FUNCTIONS
    )
    return Minute(due / length_ns if length_ns else 0.0, shares)


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=8)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    lines = ["| minute | rate | error | stated | held |", "|---|---:|---:|---:|---:|"]
    found = []
    for _ in range(options.runs):
        for number, minute in enumerate(measure(options.minutes), 1):
            found.append(minute)
            widest = max(one for _, _, one in minute.shares)
            lines.append(
                f"| {number} | {minute.rate_hz:.0f} Hz | {100 * minute.error:.1f} | "
                f"{100 * widest:.1f} | {minute.held} of {len(FUNCTIONS)} |"
            )
            print(lines[-1], minute, flush=True)
    held = sum(minute.held for minute in found)
    lines.append(f"| all | | | | {held} of {len(FUNCTIONS) * len(found)} |")
    print(lines[-1])
    write_section("Shares while the rate follows the need", METHOD.format(**vars(options)), lines)
