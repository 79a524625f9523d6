"""Whether ``profd diff`` tells a change from noise: pairs of runs of one script, and pairs with one
slower function.

``python benchmarks/diff.py [--load changing_torch] [--pairs 20] [--planted 5] [--seconds 12]
[--planted-seconds 120]``, about 30 minutes; writes its section of ``docs/measurements.md``. In a
planted pair the second run's ``augment``, a third of each step, does 20 % more work: 6 or 7 % of a
step, in runs long enough to tell that. Each pair says how much of the other cores others kept busy,
and what a step took by the script's own count.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from load import LOADS, command
from measurements import write_section

from profd.daemon.compare.diff import Change, Diff, take_diff
from profd.daemon.store.reader import RunReader

TITLES = {
    "changing": "Telling a change from noise",
    "changing_torch": "Telling a change from noise, torch on a CPU",
}
PLANTED = "augment"
ROUNDS, SLOWER = 30, 36


class Recorded(NamedTuple):
    """A run, and the seconds a step that the script itself counted."""

    path: Path
    step_s: float


def record(load: str, folder: Path, name: str, seconds: float, rounds: int) -> Recorded:
    """Record the script once and return the run."""
    run = folder / f"{name}.profd"
    words = ["run", "--headless", "--quiet", "-o", str(run), "--", *command(load, seconds, rounds)]
    done = subprocess.run(
        [sys.executable, "-m", "profd", *words], check=True, stdout=subprocess.PIPE, text=True
    )
    steps, took_s = done.stdout.split()
    return Recorded(run, float(took_s) / int(steps))


def compare(load: str, folder: Path, name: str, seconds: float, rounds: int) -> tuple[Diff, str]:
    """Record a pair and compare it.

    Returns also what a step took, by the script and by profd, in words.
    """
    base, new = (
        record(load, folder, f"{name}-{side}", seconds, count)
        for side, count in (("base", ROUNDS), ("new", rounds))
    )
    with RunReader(base.path) as first, RunReader(new.path) as second:
        diff = take_diff(first, second)
    steps = [
        f"{1e3 * one.step_s:.2f} ms, told {1e3 * (side.step_s or float('nan')):.2f}"
        for one, side in ((base, diff.base), (new, diff.new))
    ]
    return diff, "; ".join(steps)


def is_quiet(diff: Diff) -> bool:
    """Say whether nothing is called a change."""
    step_is_same = diff.step_time is None or not diff.step_time.is_significant
    return step_is_same and not diff.significant and not diff.readings


def is_planted(change: Change, load: str) -> bool:
    """Say whether a change is that of the function which does more, or of a line in it."""
    tree = ast.parse((LOADS / f"{load}.py").read_text())
    function = next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == PLANTED
    )
    if change.kind == "line":
        return function.lineno <= change.line <= (function.end_lineno or 0)
    return PLANTED in change.name.split(" → ")


def describe(diff: Diff) -> str:
    """Return what is named first in a few words, and how busy the machine was."""
    change = diff.first
    busy = " and ".join(
        "?" if side.company is None else f"{side.company.others:.0%}"
        for side in (diff.base, diff.new)
    )
    if change is not None:
        return f"{change.kind} {change.name} {change.relative:+.1%} ({diff.unit}); others {busy}"
    beside = ", ".join(f"{one.name} {one.measure}" for one in diff.readings)
    return f"{beside or 'nothing'}; others {busy}"


def main() -> None:
    """Compare all pairs and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--load", choices=[*TITLES], default="changing", help="what is run [changing: Python alone]"
    )
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--planted", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--planted-seconds", type=float, default=120)
    parser.add_argument("--quick", action="store_true", help="one pair of each, written nowhere")
    options = parser.parse_args()
    pairs, planted = (1, 1) if options.quick else (options.pairs, options.planted)
    quiet, found = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(pairs):
            diff, steps = compare(
                options.load, Path(folder), f"same-{number}", options.seconds, ROUNDS
            )
            quiet += is_quiet(diff)
            print(f"same {number + 1}: {describe(diff)}; {steps}", flush=True)
        for number in range(planted):
            diff, steps = compare(
                options.load, Path(folder), f"planted-{number}", options.planted_seconds, SLOWER
            )
            found += (
                diff.first is not None
                and diff.first.difference > 0
                and is_planted(diff.first, options.load)
            )
            print(f"planted {number + 1}: {describe(diff)}; {steps}", flush=True)
    if options.quick:
        return
    rows = [
        "| pairs | of | result |",
        "|---|---:|---|",
        f"| the same script twice | {pairs} | no change in {quiet} |",
        f"| one function with 20 % more work | {planted} | named first in {found} |",
    ]
    print("\n".join(rows))
    write_section(
        TITLES[options.load],
        f"`benchmarks/diff.py`: pairs of runs of {options.seconds:g} s (planted: "
        f"{options.planted_seconds:g} s) under `profd run --headless`, compared by `profd diff` "
        "with its defaults. The function is a third of each step, and is named where it, or a "
        "line in it, comes first.",
        rows,
    )


if __name__ == "__main__":
    main()
