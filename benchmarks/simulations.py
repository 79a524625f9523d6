"""How often estimates are wrong by chance: simulated programs whose truth is known, thousands of each kind.

``python benchmarks/simulations.py [--trials 1000] [NAME ...]``, 20 minutes on a quiet machine; without names writes
its section of ``docs/measurements.md``. The unit tests of the same modules have a few of these programs each. Trial
number N is the same program every time.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from measurements import write_section
from proportions import most
from support import readingruns, stepruns
from support.failedreads import Reader
from support.loopmodels import CalledAnew, Nested, Plain, Program, Slowing, Torn, Watched, chance_readings
from support.memorycurves import MB, STEADY, curve, still
from support.phasevisits import evaluated, held_up, on_and_off, sampled
from support.profdcost import RUNS, has_to_govern, live
from support.traces import stack

from profd.daemon.analyze.compare.diff import take_diff
from profd.daemon.analyze.memory.trend import trend
from profd.daemon.analyze.steps.cycles import Seen, count_cycles
from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.governor import Governor
from profd.daemon.collect.stacks.paces import Paces
from profd.daemon.collect.stacks.visits import with_visits
from profd.daemon.collect.steps.loops import find_loop
from profd.daemon.store.reader import RunReader

LEAST_GROWTH = 4 * MB
Trial = Callable[[random.Random], bool]
"""Makes a program by chance, and says whether what is estimated of it is wrong."""
DEEP, FLAT = stack(*"abcdefghijklmnopqrstuvwxyz" * 8), stack("a")


def finds_counter(chance: random.Random, *, variables: int, is_declared: bool) -> bool:
    """Look after each reading for a loop among variables that change much faster than the readings."""
    declared = [f"v{number}" for number in range(variables)] if is_declared else []
    every_s = 1.5 if is_declared else 0.5
    readings = chance_readings(
        variables, chance.randint(2, 60) if is_declared else chance.randint(5, 60), chance.randrange(1 << 30),
        every_s=every_s, declared=declared,
    )  # fmt: skip
    return any(find_loop(readings[:end]) for end in range(1, len(readings) + 1))


def is_beyond_error(watched: Watched) -> bool:
    """Say whether a loop is unknown, or the error of its rate larger than was said."""
    if watched.counter.loop is None:
        return True
    return abs(watched.steps_per_s() - watched.true_steps_per_s()) > watched.error_per_s()


def is_off(watched: Watched) -> bool:
    """Say whether a loop is unknown, or its steps are off by more than 2 %."""
    if watched.counter.loop is None:
        return True
    last = watched.counts[-1]
    return abs(last.steps / watched.program.steps(last.at_ns / SECOND_NS) - 1) > 0.02


def seed_of(chance: random.Random) -> int:
    """Draw a seed."""
    return chance.randrange(1 << 30)


def steady_loop(chance: random.Random) -> bool:
    """Follow one loop for half a minute."""
    program = Plain(10 ** chance.uniform(0, 3.3), chance.randrange(10**7))
    return is_beyond_error(Watched(program, 35, seed_of(chance)))


def epochs(chance: random.Random) -> bool:
    """Follow a loop that starts over, with a pause between."""
    program = Nested(20, chance.randint(100, 3000), chance.uniform(0, 0.5), shows_epoch=chance.random() < 0.5)
    return is_beyond_error(Watched(program, 150, seed_of(chance)))


def evaluations(chance: random.Random) -> bool:
    """Follow epochs with evaluations that samples show."""
    program = Nested(20, 100, chance.choice([0.3, 1.0, 4.0]))
    return is_beyond_error(Watched(program, 36, seed_of(chance), rate_hz=100, declared=("i", "epoch")))


def waits_for_batches(chance: random.Random) -> bool:
    """Follow epochs that wait for their first batch."""
    program = Nested(28, 150, chance.choice([0.01, 0.3, 1.0, 4.0]), waits=True)
    return is_beyond_error(Watched(program, 150, seed_of(chance), rate_hz=100))


def called_anew(chance: random.Random) -> bool:
    """Follow a counter that is a local of a function called anew each step."""
    program = CalledAnew(chance.uniform(10, 40), chance.randrange(120, 2000))
    return is_beyond_error(Watched(program, 36, seed_of(chance), cost_s=0.01))


def torn(chance: random.Random) -> bool:
    """Follow a loop a seventh of whose readings is torn."""
    return is_off(Watched(Torn(Plain(chance.uniform(10, 2000)), chance), 120, seed_of(chance)))


def slowing(chance: random.Random) -> bool:
    """Follow a loop that slows down, half of whose readings are torn."""
    program: Program = Slowing(400, chance)
    return is_off(Watched(program, 100, seed_of(chance)))


def layers(chance: random.Random) -> bool:
    """Follow steps of ten layers each; the layers are no steps."""
    loop = Watched(Nested(200, 10, epoch="step"), 40, seed_of(chance)).counter.loop
    return loop is None or loop.counter.name != "step"


def is_miscounted(seen: list[Seen], cycles: int) -> bool:
    """Say whether cycles are not counted, or the error of their count larger than was said."""
    counted = count_cycles(seen)
    return counted is None or abs(counted.count - cycles) > counted.error


def visits_missed(chance: random.Random) -> bool:
    """Count visits some of which no sample saw."""
    outside_s, inside_s = chance.choice([(0.03, 0.1), (0.1, 0.05), (0.22, 0.02), (0.5, 0.015), (0.3, 0.2)])
    return is_miscounted(sampled(400, outside_s, inside_s, 0.2, seed_of(chance)), 400)


def visits_and_evaluations(chance: random.Random) -> bool:
    """Count visits between evaluations."""
    return is_miscounted(evaluated(seed_of(chance))[0], 240)


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
    found = (trend(range(end), values[:end], least_growth=LEAST_GROWTH) for end in (60, chance.randint(60, 180)))
    return any(one is not None and one.is_growing for one in found)


def slope(chance: random.Random) -> bool:
    """Say whether the interval of a slope misses it, as it may once in twenty times."""
    values = curve(still, str(seed_of(chance)), 60, 2 * MB, noise=3 * MB)
    found = trend(range(60), values, least_growth=LEAST_GROWTH)
    return found is None or not found.low_per_s <= 2 * MB <= found.high_per_s


def budget(chance: random.Random) -> bool:
    """Govern a run; say whether a minute passes a budget that can be kept by more than a fifth."""
    share, run, seed = chance.choice([0.02, 0.03, 0.05, 0.1, 0.2]), RUNS[chance.choice([*RUNS])], seed_of(chance)
    dearest = live(Governor(100, share), run(seed)).dearest_minute()
    return dearest > 1.2 * share and has_to_govern(share, run(seed))


def deep_stacks(chance: random.Random) -> bool:
    """Correct a trace by its failed reads; say whether the share of its deep stack is off by more than 2 points."""
    flat_us, deep_us = chance.choice([(9_400, 14_100), (14_100, 9_400), (3_000, 5_000)])
    reader = Reader({FLAT: flat_us, DEEP: deep_us}, {FLAT: 20, DEEP: 2_500}, seed_of(chance))
    corrected = with_visits(reader.trace, reader.failed_us, reader.samples, Paces())
    return abs(reader.error(corrected, DEEP)) > 2


def alike(chance: random.Random, *, write: Callable[..., Path]) -> bool:
    """Compare two runs of one script."""
    with tempfile.TemporaryDirectory() as folder:
        one, other = (write(Path(folder) / f"{name}.profd", seed_of(chance)) for name in "ab")
        with RunReader(one) as base, RunReader(other) as new:
            diff = take_diff(base, new)
            return bool(diff.readings or diff.significant)


SIMULATIONS: dict[str, Trial] = {
    "a counter is found among 12 variables of fast loops": partial(finds_counter, variables=12, is_declared=False),
    "a counter is found among 2 declared ones of fast loops": partial(finds_counter, variables=2, is_declared=True),
    "a steady loop's rate is beyond its error": steady_loop,
    "a rate over epochs is beyond its error": epochs,
    "a rate over evaluations is beyond its error": evaluations,
    "a rate over waits for first batches is beyond its error": waits_for_batches,
    "a counter of frames that do not stay is unknown, or beyond its error": called_anew,
    "of a loop with torn readings steps are unknown, or 2 % off": torn,
    "of a slowing loop with torn readings steps are unknown, or 2 % off": slowing,
    "layers are taken for steps": layers,
    "visits of a phase, some missed, are beyond their error": visits_missed,
    "visits between evaluations are beyond their error": visits_and_evaluations,
    "visits that are held up are beyond their error": visits_held_up,
    "steps shorter than samples are apart are counted": short_steps,
    "a phase that comes by chance is counted as steps": no_steps,
    **{f"steady memory is called growing: {kind}": partial(steady_memory, kind=kind) for kind in STEADY},
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
            lines.append(f"| {name} | {failures} of {options.trials} | ≤ {most(failures, options.trials):.2%} |")
            print(lines[-1], flush=True)
    if not options.names:
        method = f"`benchmarks/simulations.py`: {options.trials} simulated programs a line; bounds hold at 95 %."
        write_section("Chance in estimates", method, lines)


if __name__ == "__main__":
    main()
