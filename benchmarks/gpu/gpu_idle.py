"""How true profd's words on idle GPUs are, by simulated loops whose idle time is known.

Run: ``python benchmarks/run.py gpu_idle [--runs 2000]``, three minutes; writes its section
of ``docs/measurements.md``.
"""

from __future__ import annotations

import argparse
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from common.measurements import write_section
from support.gputimelines import QUEUES, Timeline, any_kind

from profd.daemon.analyze.idletime import IdleTime
from profd.daemon.store.stepfunction import step_function

SECONDS = 60
METHOD = (
    "`benchmarks/gpu/gpu_idle.py`: {runs} simulated loops of {seconds} s, read by the driver's "
    "samples 20 ms to 1 s apart in whole percents, rounded down, with a clock that is up to 5 ms "
    "off, and gaps of 2 ms to 3 s. The GPU is busy 10 to 90 % of the time. Loops wait for data "
    "and synchronize, start operations slowly, run ahead of the GPU, or do all of it; lengths "
    "vary by up to 50 %; main threads are sampled at 100 Hz. Headline: by how many points the "
    "idle share is off. Bounds: of how many phases the share of the idle time lies in them, and "
    "how wide they are. Estimates: of how many phases one is given, and how far it is off."
)


class Errors(NamedTuple):
    """How far the headline of a run was off, and of its phases: within bounds, width, and error of
    the estimate.
    """

    headline: float
    phases: list[tuple[bool, float, float | None]]


def measure(seed: int) -> Errors:
    """Simulate a loop, and compare the stated idle time with the true one."""
    chance = random.Random(seed)
    run = Timeline(any_kind(chance), SECONDS, chance)
    utilization = step_function(run.readings())
    mean, _ = utilization.mean(0, run.end_ns)
    idle_ns = run.idle(0, run.end_ns)
    headline = abs(1 - mean - idle_ns / run.end_ns)
    time = IdleTime[int]()
    time.add(utilization, run.samples(), lambda stack: stack, QUEUES.get)
    true = run.idle_by_phase()
    phases = []
    for phase, share in time.shares().items():
        truth = true[phase] / idle_ns
        error = None if share.estimate is None else abs(share.estimate - truth)
        phases.append(
            (share.low - 1e-6 <= truth <= share.high + 1e-6, share.high - share.low, error)
        )
    return Errors(headline, phases)


def row(name: str, runs: list[Errors]) -> str:
    """Return a row of the table."""
    phases = [phase for one in runs for phase in one.phases]
    errors = sorted(error for _, _, error in phases if error is not None)
    headlines = sorted(one.headline for one in runs)
    near = sum(error <= 0.03 for error in errors)
    cells = (
        name,
        f"{sum(one <= 0.01 for one in headlines)} of {len(runs)}",
        f"{100 * headlines[-1]:.2f}",
        f"{sum(inside for inside, _, _ in phases) / len(phases):.1%} of {len(phases):,}",
        f"{100 * statistics.median(width for _, width, _ in phases):.0f}",
        f"{len(errors)} ({len(errors) / len(phases):.0%})",
        f"{near} ({near / len(errors):.1%})" if errors else "",
        f"{100 * statistics.median(errors):.1f}" if errors else "",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Simulate, print the table, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    lines = [
        "| read by | headline within 1 point | its largest error | phases within their bounds | "
        "median width | estimates | within 3 points | median error |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    with ProcessPoolExecutor() as pool:
        lines.append(
            row("driver's samples", list(pool.map(measure, range(options.runs), chunksize=10)))
        )
    print(lines[-1], flush=True)
    write_section(
        "Idle GPUs, simulated", METHOD.format(runs=f"{options.runs:,}", seconds=SECONDS), lines
    )
