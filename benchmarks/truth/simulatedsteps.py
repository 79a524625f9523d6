"""How true counts of steps are, by simulated loops that the reader of steps reads in a time of
their own.

``python benchmarks/run.py simulatedsteps [--runs 10]``; a minute. Writes its section of
``docs/measurements.md``. The loops have no length that could be read: what an epoch has is seen
from readings alone.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import statistics
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

from common.measurements import write_section
from support.clocks import StoppedClock

from profd.daemon.clock import SECOND_NS
from profd.daemon.interpreter.integers import Local
from profd.daemon.steps import reader
from profd.daemon.steps.loop import StepLoop
from profd.daemon.steps.sources import Program, Source
from profd.daemon.store.records import Frame, Identity, PointsTaken, Record

SECONDS = 60.0
FIRST_READING_S, LATE_S = 0.3, 0.0005
"""When the first reading is, and by how much each is late on average."""
SCRIPT = "def train(batches):\n    for batch in batches:\n        loss.backward()\n"
ROUND = Local(1, 0)
METHOD = (
    "`benchmarks/truth/simulatedsteps.py`: simulated loops of {seconds:.0f} s, read by profd's reader "
    "of steps in their own time, {runs} for each length, mean step time, CPU time of a reading "
    "(0.3 and 0.8 ms). Episodes: at "
    "least 9 steps, the rest of an exponential distribution. Epochs: all of the same length, "
    "steps that vary by 10 to 50 %, times at half and double speed, stalls of 0.2 to 1.5 s, and "
    "up to 0.5 s between epochs. Off: by how much the count is off, of the steps between the "
    "first reading and the last. Held: how many counts are off by no more than the error that "
    "profd states."
)


class Moment(NamedTuple):
    """When the variable of a loop gets this number, and how many steps have begun."""

    begin_s: float
    number: int
    begun: int


def episodes(mean: int, step_s: float, chance: random.Random) -> Iterator[Moment]:
    """Yield the steps of episodes of different lengths, forever."""
    at_s, begun = 0.0, itertools.count(1)
    while True:
        for number in range(9 + int(chance.expovariate(1 / (mean - 9)))):
            yield Moment(at_s, number, next(begun))
            at_s += step_s * chance.lognormvariate(0, 0.3)
        at_s += 0.3 * step_s


def epochs(
    length: int,
    step_s: float,
    chance: random.Random,
    *,
    spread: float,
    stalls: float,
    rest_s: float,
) -> Iterator[Moment]:
    """Yield the steps of epochs of one length, forever: at changing speed, with stalls and with
    rests between.
    """
    at_s, speed, begun = 0.0, 1.0, 0
    while True:
        if chance.random() < 0.3:
            speed = chance.choice([0.5, 1, 1, 2])
        for number in range(length):
            begun += 1
            yield Moment(at_s, number, begun)
            at_s += speed * step_s * chance.lognormvariate(0, spread)
            if chance.random() < stalls:
                at_s += chance.uniform(0.2, 1.5)
        at_s += rest_s


class SimulatedProgram(Program):
    """A program that is at one of these moments by a clock."""

    def __init__(self, moments: list[Moment], clock: StoppedClock, file: Path) -> None:
        self._moments, self._clock, self._file = moments, clock, file
        self._begins_s = [one.begin_s for one in moments]

    def at(self, at_ns: int) -> Moment:
        """Return its moment at a time."""
        return self._moments[bisect_right(self._begins_s, at_ns / SECOND_NS) - 1]

    def stack(self) -> list[Frame]:
        return [
            Frame("train", str(self._file), 3),
            Frame("Tensor.backward", "/x/torch/_tensor.py", 9),
        ]

    def sources_of(self, _loop: StepLoop) -> list[Source]:
        return [Source("a variable", ROUND)]

    def follow(self, _leader: int | None) -> None:
        pass

    def optimizer_steps(self) -> Source | None:
        return None

    def round_of(self, _source: Source) -> int | None:
        return self.at(self._clock.at_ns).number

    def close(self) -> None:
        pass


class Counted(NamedTuple):
    """The steps of a run from the first reading to the last, the count of them, and the error that
    profd stated.
    """

    true: int
    counted: int
    error: int

    @property
    def off(self) -> float:
        return (self.counted - self.true) / self.true

    def holds(self) -> bool:
        return abs(self.counted - self.true) <= max(self.error, 1)


Kind = Callable[[random.Random], Iterator[Moment]]


def simulate(kind: Kind, cost_s: float, seed: int) -> Counted | None:
    """Read one loop, where a reading takes ``cost_s`` of CPU time; None: there was no count."""
    chance = random.Random(seed)
    moments = list(itertools.takewhile(lambda one: one.begin_s < SECONDS, kind(chance)))
    clock, taken = StoppedClock(int(FIRST_READING_S * SECOND_NS)), list[Record]()
    cpu_ns = itertools.count(0, int(cost_s * SECOND_NS))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as replaced:
        replaced.enter_context(
            mock.patch.object(reader, "time", SimpleNamespace(thread_time_ns=cpu_ns.__next__))
        )
        (file := Path(folder) / "train.py").write_text(SCRIPT)
        program = SimulatedProgram(moments, clock, file)
        steps = reader.StepReader(Identity(os.getpid(), 1), clock, taken.append, lambda *_: program)
        while clock.at_ns < SECONDS * SECOND_NS:
            clock.at_ns += int((steps.poll() + chance.expovariate(1 / LATE_S)) * SECOND_NS)
        clock.at_ns = int(SECONDS * SECOND_NS)
        steps.end()
    counts = [one for one in taken if isinstance(one, PointsTaken)]
    if not counts:
        return None
    (first, last), begun = (counts[0].points, counts[-1].points), program.at(counts[0].at_ns).begun
    # Either count may be off by the error that was stored with it.
    return Counted(
        moments[-1].begun - begun,
        int(last[0].value - first[0].value),
        int(first[1].value + last[1].value),
    )


STEADY, RESTING, RESTLESS = (0.1, 0.0, 0.5), (0.5, 0.002, 0.3), (0.5, 0.01, 0.0)
KINDS: dict[str, list[Kind]] = {
    **{
        f"episodes of {mean} steps on average": [
            partial(episodes, mean, step_s) for step_s in (0.005, 0.017, 0.03)
        ]
        for mean in (16, 30, 60, 200)
    },
    **{
        f"epochs of {length} steps of {1000 * step_s:.0f} ms": [
            partial(epochs, length, step_s, spread=spread, stalls=stalls, rest_s=rest_s)
            for spread, stalls, rest_s in (STEADY, RESTING, RESTLESS)
        ]
        for length, step_s in ((20, 0.05), (63, 0.03), (63, 0.008), (300, 0.01), (1000, 0.004))
    },
}


def simulate_all(kinds: list[Kind], runs: int) -> list[Counted | None]:
    """Read loops of some kinds, each so many times under all conditions."""
    cases = itertools.product(kinds, (0.0003, 0.0008), range(runs))
    return [simulate(*case) for case in cases]


def row(name: str, simulated: list[Counted | None]) -> str:
    """Return a row of the table."""
    found = [one for one in simulated if one is not None]
    off, errors = [one.off for one in found], [one.error / one.true for one in found]
    held = sum(one.holds() for one in found)
    cells = (
        f"{statistics.mean(off):+.1%} ({min(off):+.1%} to {max(off):+.1%}) | "
        f"{statistics.mean(errors):.1%} | {len(simulated) - len(found)}"
    )
    return f"| {name} | {cells} | {held} of {len(found)} |"


def main() -> None:
    """Simulate all kinds and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    lines = [
        "| loop | off: mean (from, to) | stated error, mean | no count | held |",
        "|---|---:|---:|---:|---:|",
    ]
    everything: list[Counted | None] = []
    with ProcessPoolExecutor() as pool:
        for name, found in zip(
            KINDS,
            pool.map(simulate_all, KINDS.values(), itertools.repeat(options.runs)),
            strict=True,
        ):
            lines.append(row(name, found))
            everything += found
    lines.append(row("all", everything))
    print("\n".join(lines))
    write_section(
        "Truth of steps, simulated", METHOD.format(seconds=SECONDS, runs=options.runs), lines
    )
