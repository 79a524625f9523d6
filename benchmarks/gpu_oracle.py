"""What readings at 10 Hz can tell of idle GPUs by phase, be stacks known perfectly: a bound for any regression.

Run: ``python benchmarks/gpu_oracle.py [--runs 80]``, a minute; prints a table. Idle shares of readings are fitted by
the time that the main thread spends in each phase, or in each part of a phase by the time since its begin: least
squares with parts between 0 and 1, whose mean is exact. Stacks are those of the simulation, or sampled at 100 Hz. It
gives the share of phases whose part of the idle time comes out within 3 points; nothing says which phases these are.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.gputimelines import Timeline, any_kind

from profd.daemon.store.stepfunction import Step, step_function

SECONDS = 60
MEAN_WEIGHT = 30.0
ROUNDS = 150
Visit = tuple[float, float, int]


def true_visits(run: Timeline) -> list[Visit]:
    """Return from when to when a thread was in which phase."""
    ends = [(min(start, run.end_ns), phase) for start, phase in run.phases]
    return [(start, end, phase) for (start, phase), (end, _) in pairwise(ends) if end > start]


def sampled_visits(run: Timeline) -> list[Visit]:
    """Return the same by samples: a phase begins half-way between two of them."""
    rows = run.samples()
    starts = [rows[0].start_ns, *(after.start_ns - before.duration_ns / 2 for before, after in pairwise(rows))]
    return [(start, end, row.stack) for row, (start, end) in zip(rows, pairwise([*starts, run.end_ns]), strict=True)]


def joined(visits: Sequence[Visit]) -> list[Visit]:
    """Return visits of which no two of one phase follow each other."""
    found: list[Visit] = []
    for start, end, phase in visits:
        if found and found[-1][2] == phase:
            found[-1] = found[-1][0], end, phase
        else:
            found.append((start, end, phase))
    return found


def told(visits: Sequence[Visit], steps: Sequence[Step], parts: int) -> dict[int, float]:
    """Return the share of the idle time by phase that a fit with so many parts of each phase gives."""
    phases = sorted({phase for *_, phase in visits})
    edges: dict[int, list[float]] = {}
    for phase in phases:
        places = np.concatenate([np.linspace(0, end - start, 8) for start, end, own in visits if own == phase])
        edges[phase] = [0.0, *(float(np.quantile(places, part / parts)) for part in range(1, parts)), float("inf")]
    spent = np.zeros((len(steps), len(phases) * parts))
    at = 0
    for start, end, phase in visits:
        while at < len(steps) and steps[at].end_ns <= start:
            at += 1
        for part, (low, high) in enumerate(pairwise(edges[phase])):
            begin, until, place = start + low, min(end, start + high), at
            while place < len(steps) and steps[place].start_ns < until:
                length = min(until, steps[place].end_ns) - max(begin, steps[place].start_ns)
                spent[place, phases.index(phase) * parts + part] += max(length, 0)
                place += 1
    covered = spent.sum(1)
    shares, idle = spent[covered > 0] / covered[covered > 0, None], np.array([1 - step.value for step in steps])
    found = fitted(shares, idle[covered > 0]) * shares.mean(0) / idle.mean()
    return {phase: float(found[at * parts : (at + 1) * parts].sum()) for at, phase in enumerate(phases)}


def fitted(shares: Any, idle: Any) -> Any:  # noqa: ANN401
    """Return the part of each column for which the GPU was idle, from 0 to 1."""
    rows, values = np.vstack([shares, MEAN_WEIGHT * shares.mean(0)]), np.append(idle, MEAN_WEIGHT * idle.mean())
    square, right = rows.T @ rows, rows.T @ values
    parts = np.full(len(right), 0.5)
    for _ in range(ROUNDS):
        for at in np.flatnonzero(square.diagonal() > 0):
            parts[at] = min(1.0, max(0.0, parts[at] + (right[at] - square[at] @ parts) / square[at, at]))
    return parts


def main() -> None:
    """Simulate, fit, and print how many phases come out within 3 points."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=80)
    near: dict[tuple[str, int], list[bool]] = {}
    for seed in range(parser.parse_args().runs):
        chance = random.Random(f"{seed} True")
        run = Timeline(any_kind(chance, has_gpm=True), SECONDS, chance)
        steps = [step for step in step_function(run.readings()).steps if 0 <= step.start_ns < step.end_ns <= run.end_ns]
        true = run.idle_by_phase()
        for stacks, visits in (("perfect", joined(true_visits(run))), ("sampled", joined(sampled_visits(run)))):
            for parts in (1, 8):
                found = told(visits, steps, parts)
                errors = (abs(share - true[phase] / sum(true.values())) for phase, share in found.items())
                near.setdefault((stacks, parts), []).extend(error <= 0.03 for error in errors)
    print("| stacks | parts of a phase | phases | within 3 points |\n|---|---:|---:|---:|")
    for (stacks, parts), values in near.items():
        print(f"| {stacks} | {parts} | {len(values)} | {sum(values) / len(values):.0%} |")


if __name__ == "__main__":
    main()
