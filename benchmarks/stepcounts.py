"""How true steps are: the programs of ``tests/programs/steploops``, recorded by real sessions, against their diaries.

``python benchmarks/stepcounts.py [--runs 8] [--seconds 36]``, about 6 minutes on a quiet machine; writes its section of
``docs/measurements.md``. All programs are recorded at the same time: they wait more than they compute.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from measurements import write_section
from proportions import most

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.analyze.steps.steps import COUNT_SERIES, Steps, take_steps
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

PROGRAMS = Path(__file__).parents[1] / "tests" / "programs" / "steploops"
WITHOUT = ("no_loop", "retries")
NOT_PROGRAMS = ("diary",)
# Those whose samples tell pauses or the steps themselves; of the others counters alone are read.
SAMPLED = ("module_loop", "nested_loops")
LIMIT = 0.02


class Result(NamedTuple):
    """The relative error of the rate of one run, and whether the error that was said holds the truth."""

    rate_error: float
    holds: bool


class Diary:
    """The times of the steps that a program made."""

    def __init__(self, path: Path) -> None:
        # The last line may be written at this moment.
        self._stepped_ns = [int(line.split()[0]) for line in path.read_text().splitlines()[:-1]]

    def per_s(self, from_ns: int, to_ns: int) -> float:
        """Return the rate between two times, the steps at both ends as fractions."""
        return (self._made_by(to_ns) - self._made_by(from_ns)) * SECOND_NS / (to_ns - from_ns)

    def _made_by(self, at_ns: int) -> float:
        made = min(max(bisect_right(self._stepped_ns, at_ns), 1), len(self._stepped_ns) - 1)
        before_ns, after_ns = self._stepped_ns[made - 1], self._stepped_ns[made]
        return made + (at_ns - before_ns) / (after_ns - before_ns)


def measure(seconds: int) -> dict[str, Result | None]:
    """Record all programs once; None where no steps were said."""
    names = [path.stem for path in sorted(PROGRAMS.glob("*.py")) if path.stem not in NOT_PROGRAMS]
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        folder = Path(home)
        sessions = {}
        for name in names:
            words = [sys.executable, str(PROGRAMS / f"{name}.py"), str(folder / name)]
            program = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE))
            stack.callback(program.kill)
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            attach = [sys.executable, "-m", "profd", "attach", str(program.pid), "--headless", "--budget", "100"]
            options = ["--duration", str(seconds), "--rate", "100" if name in SAMPLED else "10"]
            sessions[name] = subprocess.Popen(
                [*attach, *options, "-o", str(folder / f"{name}.profd")],
                env={**os.environ, "PROFD_HOME": home}, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        assert {session.wait() for session in sessions.values()} == {0}
        return {name: compare(folder / f"{name}.profd", folder / name) for name in names}


def compare(run_file: Path, diary_file: Path) -> Result | None:
    """Compare the steps of a run with the diary of its program."""
    with RunReader(run_file) as reader:
        steps = take_steps(reader, MAIN_THREADS, PhaseIndex(reader))
        if steps == Steps():
            return None
        assert steps.per_s is not None
        series = [row.id for row in reader.series.values() if row.name == COUNT_SERIES]
        times = sorted(point.at_ns for one in series for point in reader.points(one))
        times = times or [reader.info.started_ns + SECOND_NS, reader.info.end_ns - SECOND_NS]
        error = abs(steps.per_s - Diary(diary_file).per_s(times[0], times[-1]))
        return Result(error / (steps.per_s or 1.0), error <= (steps.per_s_error or 0.0))


def row(name: str, found: list[Result | None]) -> str:
    """Return a row of the table."""
    known = [one for one in found if one is not None]
    if name in WITHOUT:
        return f"| {name} | has no steps | {len(known)} of {len(found)} had some | | |"
    errors = [one.rate_error for one in known] or [float("nan")]
    beyond = len(found) - sum(one.rate_error <= LIMIT for one in known)
    holds = sum(one.holds for one in known)
    share = most(beyond, len(found))
    return (
        f"| {name} | {statistics.median(errors):.1%} (to {max(errors):.1%}) | {beyond} of {len(found)} | "
        f"≤ {share:.0%} | {holds} of {len(known)} |"
    )


def main() -> None:
    """Measure a few times, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=36)
    options = parser.parse_args()
    found: defaultdict[str, list[Result | None]] = defaultdict(list)
    for _ in range(options.runs):
        for name, result in measure(options.seconds).items():
            found[name].append(result)
    lines = [
        f"| program | error of the rate, median | beyond {LIMIT:.0%} or unknown | of all, at most | error holds |",
        "|---|---:|---:|---:|---:|",
        *(row(name, results) for name, results in found.items()),
    ]
    print("\n".join(lines))
    method = f"`benchmarks/stepcounts.py`: {options.runs} runs of {options.seconds} s, all programs at once."
    write_section("Truth of steps", method, lines)


if __name__ == "__main__":
    main()
