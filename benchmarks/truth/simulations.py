"""How often estimates are wrong by chance: simulated programs whose truth is known, thousands of
each kind.

``python benchmarks/run.py simulations [--trials 1000] [NAME ...]``, ten minutes on a quiet machine;
without names writes its section of ``docs/measurements.md``. The unit tests of the same modules
have a few of these programs each. Trial number N is the same program every time.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from common.measurements import write_section
from common.proportions import most
from support import readingruns, stepruns
from support.failedreads import Reader
from support.memorycurves import MB, STEADY, curve, still
from support.phasevisits import held_up, on_and_off, sampled
from support.profdcost import RUNS, has_to_govern, live
from support.traces import stack

from profd.daemon.analyze.steps import Seen, count_cycles
from profd.daemon.analyze.trend import trend
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.diff import take_compared, take_diff
from profd.daemon.session.budget import Governor
from profd.daemon.stacks.evidence import TornShares
from profd.daemon.stacks.misreads import with_visits
from profd.daemon.store.reader import RunReader

LEAST_GROWTH = 4 * MB
Trial = Callable[[random.Random], bool]
"""Makes a program by chance, and says whether what is estimated of it is wrong."""
DEEP, FLAT = stack(*"abcdefghijklmnopqrstuvwxyz" * 8), stack("a")


def seed_of(chance: random.Random) -> int:
    """Draw a seed."""
    return chance.randrange(1 << 30)


def is_miscounted(seen: list[Seen], cycles: int) -> bool:
    """Say whether cycles are not counted, or the error of their count larger than was said."""
    counted = count_cycles(seen)
    return counted is None or abs((counted.count or 0) - cycles) > (counted.count_error or 0)


def visits_missed(chance: random.Random) -> bool:
    """Count visits some of which no sample saw."""
    outside_s, inside_s = chance.choice(
        [(0.03, 0.1), (0.1, 0.05), (0.22, 0.02), (0.5, 0.015), (0.3, 0.2)]
    )
    return is_miscounted(sampled(400, outside_s, inside_s, 0.2, seed_of(chance)), 400)


def visits_and_evaluations(chance: random.Random) -> bool:
    """Twelve epochs of 20 steps of 62 ms; after each an evaluation, long enough for four steps."""
    seen: list[Seen] = []
    at_ns = 0
    for _ in range(12):
        epoch = sampled(20, 0.035, 0.027, 0.1, seed_of(chance))
        seen += (one._replace(start_ns=at_ns + one.start_ns) for one in epoch)
        at_ns += int(1.24 * SECOND_NS)
        seen.append(Seen(at_ns, is_inside=False))
        at_ns += SECOND_NS // 4
    return is_miscounted(seen, 240)


def visits_held_up(chance: random.Random) -> bool:
    """Count visits that wait for a core now and then."""
    return is_miscounted(held_up(500, chance.uniform(0.05, 0.15), seed_of(chance)), 500)


def short_steps(chance: random.Random) -> bool:
    """Look for steps much shorter than samples are apart."""
    return count_cycles(sampled(3000, 0.004, 0.004, 0.2, seed_of(chance))) is not None


def no_steps(chance: random.Random) -> bool:
    """Look for steps in a phase that comes and goes by chance."""
    return count_cycles(on_and_off(chance.uniform(0.2, 0.8), seed_of(chance))) is not None


def steady_memory(chance: random.Random, *, kind: str) -> bool:
    """Look for growth where there is none, after a minute and once more."""
    values = curve(STEADY[kind], str(seed_of(chance)), 180)
    found = (
        trend(range(end), values[:end], least_growth=LEAST_GROWTH)
        for end in (60, chance.randint(60, 180))
    )
    return any(one is not None and one.is_growing for one in found)


def slope(chance: random.Random) -> bool:
    """Say whether the interval of a slope misses it, as it may once in twenty times."""
    values = curve(still, str(seed_of(chance)), 60, 2 * MB, noise=3 * MB)
    found = trend(range(60), values, least_growth=LEAST_GROWTH)
    return found is None or not found.low_per_s <= 2 * MB <= found.high_per_s


def budget(chance: random.Random) -> bool:
    """Govern a run; say whether a minute passes a budget that can be kept by more than a fifth."""
    share, run, seed = (
        chance.choice([0.02, 0.03, 0.05, 0.1, 0.2]),
        RUNS[chance.choice([*RUNS])],
        seed_of(chance),
    )
    dearest = live(Governor(100, share), run(seed)).dearest_minute()
    return dearest > 1.2 * share and has_to_govern(share, run(seed))


def deep_stacks(chance: random.Random) -> bool:
    """Correct a trace by its failed reads.

    Say whether the share of its deep stack is off by more than 2 points.
    """
    flat_us, deep_us = chance.choice([(9_400, 14_100), (14_100, 9_400), (3_000, 5_000)])
    reader = Reader({FLAT: flat_us, DEEP: deep_us}, {FLAT: 20, DEEP: 2_500}, seed_of(chance))
    corrected = with_visits(tuple(reader.changes), reader.failed_us, reader.samples, TornShares())
    return abs(reader.error(corrected, DEEP)) > 2


def alike(chance: random.Random, *, write: Callable[..., Path]) -> bool:
    """Compare two runs of one script."""
    with tempfile.TemporaryDirectory() as folder:
        one, other = (write(Path(folder) / f"{name}.profd", seed_of(chance)) for name in "ab")
        with RunReader(one) as base, RunReader(other) as new:
            diff = take_diff(take_compared(base), take_compared(new))
            return bool(diff.readings or diff.significant)


SIMULATIONS: dict[str, Trial] = {
    "visits of a phase, some missed, are beyond their error": visits_missed,
    "visits between evaluations are beyond their error": visits_and_evaluations,
    "visits that are held up are beyond their error": visits_held_up,
    "steps shorter than samples are apart are counted": short_steps,
    "a phase that comes by chance is counted as steps": no_steps,
    **{
        f"steady memory is called growing: {kind}": partial(steady_memory, kind=kind)
        for kind in STEADY
    },
    "the interval of a slope of memory misses it": slope,
    "a minute costs more than 1.2 times the budget": budget,
    "a deep stack's corrected share is more than 2 points off": deep_stacks,
    "the time of two runs of one script differs": partial(alike, write=stepruns.write_steps),
    "readings of two runs of one script differ": partial(alike, write=readingruns.write_run),
}


def failed(name: str, number: int) -> bool:
    """Make one trial."""
    return SIMULATIONS[name](random.Random(f"{name} {number}"))


def main() -> None:
    """Make all trials, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*SIMULATIONS, []], metavar="NAME")
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args()
    lines = ["| what goes wrong by chance | times | of all, at most |", "|---|---:|---:|"]
    with ProcessPoolExecutor() as pool:
        for name in options.names or SIMULATIONS:
            failures = sum(pool.map(partial(failed, name), range(options.trials), chunksize=10))
            lines.append(
                f"| {name} | {failures} of {options.trials} | ≤ "
                f"{most(failures, options.trials):.2%} |"
            )
            print(lines[-1], flush=True)
    if not options.names:
        method = (
            f"`benchmarks/truth/simulations.py`: {options.trials} simulated programs a line; bounds "
            "hold at 95 %."
        )
        write_section("Chance in estimates", method, lines)
