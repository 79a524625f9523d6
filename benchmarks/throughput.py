"""What profd costs a training loop: a torch loop under profd and bare, in pairs, with a null control.

Run on a quiet machine: ``python benchmarks/throughput.py [--rounds 10] [--threads 1] [--quick]``; about 15 minutes
for each number of torch threads. Writes its section of ``docs/measurements.md``, unless quick.

Whole runs are what a user sees, the search for the loop counter in them: a round is three fresh processes, under profd,
bare and bare once more, in changing order. Blocks show the cost of recording alone, with less noise: in each fresh
process profd is attached to the loop for the two middle ones of four blocks, A B B A, so that a machine that grows
slower or faster evenly cancels out; four more blocks are the null control, in which nothing is attached.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import steps
from measurements import write_section
from paired import Pairs, distinguish, effect
from recorders import Profd
from steps import Loop, Took

LIMIT_PERCENT = 0.41
METHOD = (
    "`benchmarks/throughput.py`: {rounds} rounds of a small torch loop at the default 100 Hz. Blocks: {rounds} fresh "
    "processes, each with blocks of {block} steps in the order A B B A, where `profd attach --headless` records "
    "during B; {settle} steps between A and B, and between B and A, in which it starts and ends, count for neither. "
    "Four more blocks, in which nothing is attached, are compared alike as null control; which four come first "
    "alternates. Whole runs: {whole} steps in fresh processes under `profd run --headless`, bare, and bare once more "
    "as null control, in changing order. Wall is by the clock, CPU the CPU time of the loop's process. In brackets "
    "the 95 % interval of the mean ratio; nothing is left out. Whether the cost can be told from the null control is "
    "decided by a permutation test: if profd cost nothing, it would not matter which ratio of a round is called the "
    "cost and which the control, so p is the share of all ways to exchange them that give at least as large a mean "
    "difference, and below 0.05 they are called distinguishable."
)


class Round(NamedTuple):
    """What was compared in one round: under profd with bare, and bare with bare."""

    cost: tuple[Took, Took]
    null: tuple[Took, Took]


Compare = Callable[[int, int, int], Round]
"""Take round ``number`` with so many torch threads and steps."""


def whole_runs(number: int, threads: int, count: int) -> Round:
    """Compare three fresh processes."""
    kinds = ("profd", "bare", "null")
    took = {kind: whole_run(kind, threads, count) for kind in (*kinds[number % 3 :], *kinds[: number % 3])}
    return Round((took["profd"], took["bare"]), (took["null"], took["bare"]))


def whole_run(kind: str, threads: int, count: int) -> Took:
    """Run the loop once from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "run.profd")
        profd = [sys.executable, "-m", "profd", "run", "--headless", "--quiet", "-o", output, "--"]
        return steps.whole_run(profd if kind == "profd" else [], threads, count)


def blocks(number: int, threads: int, count: int) -> Round:
    """Compare blocks of steps of one fresh process."""
    with steps.bare(threads) as loop:
        kinds = (recorded, unrecorded) if number % 2 else (unrecorded, recorded)
        compared = {kind: around(loop, count, kind) for kind in kinds}
    return Round(compared[recorded], compared[unrecorded])


def around(loop: Loop, count: int, middle: Callable[[Loop, int], Took]) -> tuple[Took, Took]:
    """Take two blocks in the middle of two others; returns what the former took, and the latter."""
    before = loop.step(count)
    within = middle(loop, count)
    loop.step(settle_steps(count))
    return within, before + loop.step(count)


def unrecorded(loop: Loop, count: int) -> Took:
    """Take two blocks of steps."""
    loop.step(settle_steps(count))
    return loop.step(count) + loop.step(count)


def recorded(loop: Loop, count: int) -> Took:
    """Take two blocks of steps while profd records, once it has found its way."""
    with tempfile.TemporaryDirectory() as folder:
        profd = Profd.attach(loop.pid, Path(folder) / "run.profd")
        took = unrecorded(loop, count)
        profd.end()
    return took


def settle_steps(count: int) -> int:
    """Return the steps between blocks: some seconds, in which profd looks for the loop counter."""
    return 2 * count


def pairs_of(compared: Sequence[tuple[Took, Took]], field: int) -> Pairs:
    """Return the pairs of one field: 0 wall, 1 CPU."""
    return [(one[field], other[field]) for one, other in compared]


def rows(name: str, rounds: Sequence[Round], count: int) -> list[str]:
    """Return the rows of the table for rounds of one kind, in which each side took ``count`` steps."""
    found = []
    for field, clock in enumerate(("wall", "CPU")):
        pairs = pairs_of([taken.cost for taken in rounds], field)
        nulls = pairs_of([taken.null for taken in rounds], field)
        cost, null, distinction = effect(pairs), effect(nulls), distinguish(pairs, nulls)
        step = f"{1000 * cost.median_other / count:.4f} ms | {1000 * cost.median_one / count:.4f} ms"
        limit = "yes" if cost.high < LIMIT_PERCENT else "no"
        found.append(f"| {name}, {clock} | {cost} | {null} | {distinction} | {limit} | {step} |")
    return found


def take_rounds(name: str, compare: Compare, rounds: int, threads: int, count: int) -> list[Round]:
    """Take all rounds of one kind."""
    taken = []
    for number in range(rounds):
        taken.append(compare(number, threads, count))
        print(f"{name}, round {number + 1}: {taken[-1]}", flush=True)
    return taken


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--block", type=int, default=1200, help="steps of a block")
    parser.add_argument("--whole", type=int, default=3000, help="steps of a whole run")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="torch's threads, some table rows each")
    parser.add_argument("--quick", action="store_true", help="try it in less than a minute; writes nothing down")
    options = parser.parse_args()
    rounds, block, whole = (2, 60, 60) if options.quick else (options.rounds, options.block, options.whole)
    head = ["", "slower under profd", "null control", "the cost is", f"upper end below {LIMIT_PERCENT} %"]
    head += ["median step bare", "under profd"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---|---|---:|---:|"]
    for threads in options.threads:
        name = f"{threads} torch thread{'s' if threads > 1 else ''}"
        lines += rows(f"blocks, {name}", take_rounds("blocks", blocks, rounds, threads, block), 2 * block)
        lines += rows(f"whole runs, {name}", take_rounds("whole runs", whole_runs, rounds, threads, whole), whole)
    print("\n".join(lines))
    if not options.quick:
        method = METHOD.format(rounds=rounds, block=block, settle=settle_steps(block), whole=whole)
        write_section("Cost to the target's throughput", method, lines)


if __name__ == "__main__":
    main()
