"""What profd costs a training loop: paired runs of a torch loop, bare and under profd, with a null control.

Run on a quiet machine: ``python benchmarks/throughput.py [--pairs 12] [--steps 1500]``; writes its section of
``docs/measurements.md``. A pair is two fresh processes one after the other, their order alternating; the null control
is pairs of two bare runs, taken in between.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from measurements import write_section
from paired import Effect, effect

HERE = Path(__file__).parent


def bare(steps: int, threads: int) -> float:
    """Return the seconds that the loop took by itself."""
    return run_loop([], steps, threads)


def under_profd(steps: int, threads: int) -> float:
    """Return the seconds that the loop took under ``profd run``."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "run.profd")
        return run_loop(
            ["-m", "profd", "run", "--headless", "--quiet", "-o", output, "--", sys.executable], steps, threads
        )


def run_loop(launcher: list[str], steps: int, threads: int) -> float:
    """Run the loop in a fresh process and return what it printed."""
    words = [sys.executable, *launcher, str(HERE / "steploop.py"), str(steps), str(threads)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def compare(pairs: int, steps: int, threads: int) -> tuple[Effect, Effect]:
    """Return what profd costs, and what the null control shows."""
    costs, nulls = [], []
    for number in range(pairs):
        if number % 2:
            without, with_profd = bare(steps, threads), under_profd(steps, threads)
        else:
            with_profd, without = under_profd(steps, threads), bare(steps, threads)
        costs.append((with_profd, without))
        first, second = bare(steps, threads), bare(steps, threads)
        nulls.append((first, second) if number % 2 else (second, first))
        print(f"pair {number + 1}: {with_profd:.3f} s and {without:.3f} s; null {first:.3f} s and {second:.3f} s")
    return effect(costs), effect(nulls)


def main() -> None:
    """Measure with one torch thread and with one a core, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="torch's threads, one table row each")
    arguments = parser.parse_args()
    rows = [
        "| torch threads | slower under profd | null control | median step bare | under profd |",
        "|---|---|---|---|---|",
    ]
    for threads in arguments.threads:
        cost, null = compare(arguments.pairs, arguments.steps, threads)
        step_ms = [1000 * seconds / arguments.steps for seconds in (cost.median_other, cost.median_one)]
        rows.append(f"| {threads} | {cost} | {null} | {step_ms[0]:.4f} ms | {step_ms[1]:.4f} ms |")
        print(rows[-1])
    write_section(
        "Cost to the target's throughput",
        f"`benchmarks/throughput.py`: {arguments.pairs} pairs of {arguments.steps} steps of a small torch loop, bare "
        "and under `profd run --headless` at the default 100 Hz; the order alternates. In brackets the 95 % interval "
        "of the mean ratio. The machine has two cores: with two torch threads profd has none to itself.",
        rows,
    )


if __name__ == "__main__":
    main()
