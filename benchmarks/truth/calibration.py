"""How often the interval of a share holds the truth: simulated programs, through profd's own sums.

Run: ``python benchmarks/run.py calibration [--cases 200]``, two minutes; writes its section
of ``docs/measurements.md``. A program is a path through stacks in time; py-spy is simulated as it
samples, at Poisson moments, and as its chrometrace tells of it: changes with their times, and how
many samples there were in all. The truth is the share of the time that was sampled, whatever the
program does later.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from common.measurements import write_section

from profd.daemon.analyze.confidence import margin
from profd.daemon.analyze.uncertainty import ShareVariance, Transitions
from profd.daemon.clock import SECOND_NS
from profd.daemon.stacks.assembly import apportion
from profd.daemon.store.rows import IntervalRow

RATE_HZ = 100.0
LENGTHS_S = (2, 10, 60)
ASKED = 0
"""The stack whose share is asked for."""
METHOD = (
    "`benchmarks/truth/calibration.py`: {cases} simulated recordings of each kind and length at 100 Hz. "
    "Held: how many of the 95 % intervals hold the true share; with {cases} cases, 95 % give or "
    "take {chance:.1f} points is chance. ±: the mean margin of the intervals, in points. Error: "
    "the mean distance from the truth, in points."
)


class Path(NamedTuple):
    """A way through stacks: from ``edges_s[i]`` on a thread stands in ``stacks[i]``."""

    edges_s: Sequence[float]
    stacks: Sequence[int]

    def at(self, at_s: float) -> int:
        """Return the stack at a time."""
        return self.stacks[bisect_right(self.edges_s, at_s) - 1]

    def share(self, from_s: float, to_s: float) -> float:
        """Return the share of a time in the stack asked for."""
        ends = (*self.edges_s[1:], math.inf)
        spent_s = sum(
            max(min(end, to_s) - max(start, from_s), 0.0)
            for start, end, stack in zip(self.edges_s, ends, self.stacks, strict=True)
            if stack == ASKED
        )
        return spent_s / (to_s - from_s)


class Blur(NamedTuple):
    """A loop whose step is far shorter than the distance of samples: each sees a stack by its
    share.
    """

    weights: Sequence[float]

    def at(self, _: float) -> int:
        """Return the stack that is seen at a time."""
        return random.choices(range(len(self.weights)), self.weights)[0]

    def share(self, _from_s: float, _to_s: float) -> float:
        """Return the share of any time in the stack asked for."""
        return self.weights[ASKED] / sum(self.weights)


Program = Callable[[float], "Path | Blur"]


class Kind(NamedTuple):
    """A kind of case: its program by seconds, how many threads run it, and whether they keep step
    with each other.
    """

    name: str
    program: Program
    threads: int = 1
    in_step: bool = True
    slows_down: bool = False


def cycle(*parts: tuple[int, float], wander: float = 0.0) -> Program:
    """Return a program that goes through (stack, seconds) again and again, each by chance up to
    ``wander`` longer.
    """

    def program(seconds: float) -> Path:
        edges, stacks, at_s = (
            [0.0],
            [parts[0][0]],
            -random.uniform(0, sum(length for _, length in parts)),
        )
        while at_s < seconds:
            for stack, length_s in parts:
                if at_s > 0:
                    edges.append(at_s)
                    stacks.append(stack)
                at_s += length_s * random.uniform(1 - wander, 1 + wander)
                if at_s > 0 and len(stacks) == 1:
                    stacks[0] = stack
        return Path(edges, stacks)

    return program


KINDS = (
    Kind("step far below 10 ms, a share of 39 %", lambda _: Blur([39, 26, 20, *[15 / 40] * 40])),
    Kind("step far below 10 ms, a share of 2 %", lambda _: Blur([2, 59, 39])),
    Kind("step of 10 ms, 70 %", cycle((0, 0.007), (1, 0.002), (2, 0.001), wander=0.2)),
    Kind("step of 41 ms, 50 %", cycle((0, 0.0205), (1, 0.0123), (2, 0.0082), wander=0.1)),
    Kind(
        "step of 50 ms: a wait of 60 %, then 1 ms each",
        cycle((0, 0.03), *((1 + n, 0.001) for n in range(20))),
    ),
    Kind("phases of 100, 60 and 40 ms", cycle((0, 0.1), (1, 0.06), (2, 0.04))),
    Kind("phases of about 1 and 0.7 s", cycle((0, 1.0), (1, 0.7), wander=0.5)),
    Kind("phases of about 10 and 7 s", cycle((0, 10.0), (1, 7.0), wander=0.5)),
    Kind("4 threads in step, 41 ms", cycle((0, 0.0246), (1, 0.0164)), threads=4),
    Kind(
        "4 threads each on its own, 41 ms",
        cycle((0, 0.0246), (1, 0.0164), wander=0.3),
        threads=4,
        in_step=False,
    ),
    Kind("100 Hz, then 25 Hz, 41 ms", cycle((0, 0.0205), (1, 0.0205), wander=0.1), slows_down=True),
)


class Case(NamedTuple):
    """A recording: by how much its share is off, and by how much it says that it may be."""

    error: float
    margin: float


def simulate(kind: Kind, seconds: float) -> Case:
    """Simulate one recording, or two at two rates."""
    halves = [(0.0, seconds / 2, RATE_HZ), (seconds / 2, seconds, RATE_HZ / 4)]
    parts = halves if kind.slows_down else [(0.0, seconds, RATE_HZ)]
    path = kind.program(seconds)
    paths = [path if kind.in_step else kind.program(seconds) for _ in range(kind.threads)]
    rows: list[IntervalRow] = []
    truth = 0.0
    for from_s, to_s, rate_hz in parts:
        times = [from_s, *sample_times(from_s, to_s, rate_hz), to_s]
        for thread, one in enumerate(paths):
            rows += intervals(one, times, thread)
            truth += one.share(from_s, to_s) * (to_s - from_s) / seconds / len(paths)
    rows.sort(key=lambda row: row.start_ns)
    share, error = estimate(rows)
    return Case(share - truth, margin(error))


def sample_times(from_s: float, to_s: float, rate_hz: float) -> Iterator[float]:
    """Yield Poisson moments."""
    at_s = from_s
    while (at_s := at_s + random.expovariate(rate_hz)) < to_s:
        yield at_s


def intervals(path: Path | Blur, times: Sequence[float], thread: int) -> Iterator[IntervalRow]:
    """Yield what a recording keeps of samples: their changes, and their number by length."""
    seen = [path.at(at_s) for at_s in times[:-1]]
    starts = [i for i in range(len(seen)) if i == 0 or seen[i] != seen[i - 1]]
    starts_ns = [round(times[i] * SECOND_NS) for i in starts] + [round(times[-1] * SECOND_NS)]
    lengths = [end - start for start, end in itertools.pairwise(starts_ns)]
    for i, start_ns, length_ns, samples in zip(
        starts, starts_ns, lengths, apportion(len(seen), lengths), strict=False
    ):
        yield IntervalRow(start_ns, length_ns, thread, seen[i], samples)


def estimate(rows: Sequence[IntervalRow]) -> tuple[float, float]:
    """Return the share of the stack asked for and its standard error, as profd has them."""
    changes = Transitions()
    for row in rows:
        changes.add(row)
    doubt = ShareVariance(changes.take(), lambda stack: frozenset({stack}))
    whole_ns = sum(row.duration_ns for row in rows)
    share = sum(row.duration_ns for row in rows if row.stack == ASKED) / whole_ns
    return share, doubt.standard_error(ASKED, share, whole_ns)


def table_row(kind: Kind, cases: int) -> str:
    """Return the row of a kind: for each length how many intervals hold, how wide they are, and the
    mean error.
    """
    cells = [kind.name]
    for seconds in LENGTHS_S:
        found = [simulate(kind, seconds) for _ in range(cases)]
        held = sum(abs(case.error) <= case.margin for case in found) / cases
        bias = statistics.mean(case.error for case in found)
        width = statistics.mean(case.margin for case in found)
        cells.append(f"{100 * held:.1f} %, ± {100 * width:.2f}, {100 * bias:+.2f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random.seed(options.seed)
    lines = [
        f"| program | {' | '.join(f'{seconds} s: held, ±, error' for seconds in LENGTHS_S)} |",
        f"|---|{'---:|' * len(LENGTHS_S)}",
    ]
    for kind in KINDS:
        lines.append(table_row(kind, options.cases))
        print(lines[-1], flush=True)
    chance = 196 * math.sqrt(0.95 * 0.05 / options.cases)
    write_section(
        "Intervals of shares, simulated",
        METHOD.format(cases=options.cases, chance=chance),
        lines,
    )
