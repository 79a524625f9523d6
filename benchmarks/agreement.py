"""How far the samples that profd exports lie from those of bare py-spy on the same process at the
same time.

Run on a quiet machine: ``python benchmarks/agreement.py [--runs 5] [--seconds 20] [PROGRAM ...]``,
about 9 minutes; writes its section of ``docs/measurements.md``. profd and two py-spys record side
by side: what lies between the two py-spys is the noise that no recorder can go below.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from measurements import write_section
from proportions import most

from profd.daemon.analyze.selection import Selection
from profd.daemon.exports.formats import collapsed_lines
from profd.daemon.stacks.pyspy import find_py_spy
from profd.daemon.store.reader import RunReader
from profd.daemon.units import plural

ROOT = Path(__file__).parents[1]
LIMIT = 0.08
PROGRAMS: dict[str, tuple[str, ...]] = {
    "ResNet-18, 0.3 s a step": ("target/cifar_resnet18.py", "--workers", "0", "--epochs", "100"),
    "convolutions, 10 ms a step": ("tests/programs/torchloop.py",),
    "MLP, 0.7 ms a step": ("target/simple_net.py", "--steps", "100000000"),
    "plain Python": ("tests/programs/known_phases.py", os.devnull),
}
SETTLING_S = 12.0


class Distances(NamedTuple):
    """Total variation of self time by function: profd to each py-spy (mean), and the py-spys to one
    another.
    """

    profd: float
    py_spy: float


def self_time(collapsed: list[str]) -> Counter[str]:
    """Return samples by the function at the leaf, from collapsed lines.

    Lines of one function are one.
    """
    counted: Counter[str] = Counter()
    for line in collapsed:
        stack, _, samples = line.rpartition(" ")
        function, _, place = stack.rpartition(";")[2].rpartition(" (")
        counted[f"{function} {place.rpartition(':')[0]}"] += int(samples)
    return counted


def total_variation(one: Counter[str], other: Counter[str]) -> float:
    """Return half the sum of the differences of shares: 0 for the same distribution, 1 for disjoint
    ones.
    """
    totals = sum(one.values()), sum(other.values())
    return sum(abs(one[key] / totals[0] - other[key] / totals[1]) for key in one | other) / 2


def start_py_spy(pid: int, seconds: int, output: Path) -> subprocess.Popen[bytes]:
    """Start the recording that profd is compared with."""
    words = [
        "record",
        "--nonblocking",
        "--idle",
        "-f",
        "raw",
        "-d",
        str(seconds),
        "-o",
        str(output),
        "-p",
        str(pid),
    ]
    return subprocess.Popen(
        [find_py_spy(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def distances(run_file: Path, raw: tuple[Path, Path]) -> Distances:
    """Compare what the three recorders wrote."""
    first, second = (self_time(file.read_text(errors="replace").splitlines()) for file in raw)
    with RunReader(run_file) as reader:
        ours = self_time(list(collapsed_lines(reader, Selection())))
    to_first, to_second = total_variation(ours, first), total_variation(ours, second)
    return Distances((to_first + to_second) / 2, total_variation(first, second))


def measure(pid: int, seconds: int) -> Distances:
    """Record a process with all three at once."""
    with tempfile.TemporaryDirectory() as folder:
        run_file, raw = Path(folder) / "run.profd", (Path(folder) / "1.raw", Path(folder) / "2.raw")
        words = ["attach", str(pid), "--headless", "--duration", str(seconds), "-o", str(run_file)]
        profd = subprocess.Popen([sys.executable, "-m", "profd", *words], stderr=subprocess.DEVNULL)
        beside = [start_py_spy(pid, seconds, file) for file in raw]
        assert [process.wait() for process in (profd, *beside)] == [0, 0, 0]
        return distances(run_file, raw)


def measure_program(words: tuple[str, ...], runs: int, seconds: int) -> list[Distances]:
    """Start a program and compare a few times while it runs."""
    program = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        time.sleep(SETTLING_S)  # imports and first steps are over: runs are to be alike
        return [measure(program.pid, seconds) for _ in range(runs)]
    finally:
        program.kill()
        program.wait()


def row(name: str, found: list[Distances]) -> str:
    """Return a row of the table: median and largest of each, and how many are above the limit, with
    a 95 % bound.
    """
    cells = []
    for values in zip(*found, strict=True):
        above = sum(value > LIMIT for value in values)
        share = most(above, len(values))
        cells += [
            f"{statistics.median(values):.3f} (to {max(values):.3f})",
            f"{above} of {len(values)} (a share ≤ {share:.0%} of all)",
        ]
    return f"| {' | '.join([name, *cells])} |"


def main() -> None:
    """Measure all programs, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--dry-run", action="store_true", help="print only")
    parser.add_argument(
        "programs", nargs="*", default=list(PROGRAMS), help=f"of {', '.join(PROGRAMS)}"
    )
    options = parser.parse_args()
    lines = [
        f"| program | profd to py-spy | above {LIMIT} | py-spy to py-spy | above {LIMIT} |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in options.programs:
        lines.append(row(name, measure_program(PROGRAMS[name], options.runs, options.seconds)))
        print(lines[-1], flush=True)
    if not options.dry_run:
        write_section(
            "Agreement with bare py-spy",
            f"`benchmarks/agreement.py`: {plural(options.runs, 'run')} of {options.seconds} s on "
            "each program, profd and two `py-spy record --nonblocking --idle -f raw` at once; "
            "total variation of self time by function, median and largest.",
            lines,
        )


if __name__ == "__main__":
    main()
