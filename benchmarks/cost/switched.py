"""Cost of something that is switched on and off in one process: blocks of pseudo-random order and
their differences.

Each block has two switches that know nothing of each other: the real one, and a sham that does
nothing. Four blocks in a row have both in all four positions, so on is compared with off within a
second: the speed of a machine changes more slowly than that. The sham is a null control under the
same noise. Fours next to each other are alike, so errors are those of Newey and West (Econometrica
55, 1987), with a Bartlett kernel.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profd.daemon.analyze.confidence import student_95

FOUR = 4
_DETECTED = 2.8  # errors of an effect that is found in 80 % of measurements at the level of 5 %
Values = NDArray[np.float64]


class Block(NamedTuple):
    """A planned block."""

    length_s: float
    is_on: bool
    is_sham: bool


class Taken(NamedTuple):
    """A block that was taken: the means of its whole steps, by the clock and in CPU time.

    None where it has none.
    """

    is_on: bool
    is_sham: bool
    wall_s: float | None
    cpu_s: float | None


class Estimate(NamedTuple):
    """A change in percent, with half the width of its 95 % interval and what would have been found
    in 4 of 5 cases.
    """

    percent: float
    half: float
    detectable: float

    @property
    def high(self) -> float:
        return self.percent + self.half

    @property
    def holds_zero(self) -> bool:
        return abs(self.percent) <= self.half + 1e-9

    def __str__(self) -> str:
        return f"{self.percent:+.2f} % [{self.percent - self.half:+.2f}, {self.high:+.2f}]"


def plan(seconds: float, shortest_s: float, longest_s: float, seed: int) -> list[Block]:
    """Return blocks of about ``seconds``.

    Each four in a row have both switches in all four positions, shuffled.
    """
    chance, blocks, left_s = random.Random(seed), list[Block](), seconds
    while left_s > 0:
        positions = [(is_on, is_sham) for is_on in (False, True) for is_sham in (False, True)]
        chance.shuffle(positions)
        blocks += [
            Block(chance.uniform(shortest_s, longest_s), *position) for position in positions
        ]
        left_s -= sum(block.length_s for block in blocks[-FOUR:])
    return blocks


def take_blocks(
    spans: Sequence[tuple[float, float, bool, bool]], ends_s: Values, cpu_s: Values
) -> list[Taken]:
    """Return what the steps took that lie whole within each span (from, to, real, sham), of the
    loop's own clock.

    ``ends_s`` are the ends of the steps, ``cpu_s`` the CPU time of the process by then.
    """
    taken = []
    for from_s, to_s, is_on, is_sham in spans:
        first, last = np.searchsorted(ends_s, from_s), np.searchsorted(ends_s, to_s, "right") - 1
        means = [
            float((all_s[last] - all_s[first]) / (last - first))
            for all_s in (ends_s, cpu_s)
            if last > first
        ]
        taken.append(Taken(is_on, is_sham, *(means or (None, None))))
    return taken


def estimate(blocks: Sequence[Taken], field: str) -> tuple[Estimate, Estimate]:
    """Return by how many percent the real switch and the sham lengthen a step, over all the time:
    half of it is on.

    So that is half of the difference between on and off. A four that lacks a block is left out.
    """
    real, sham = list[float](), list[float]()
    for place in range(0, len(blocks), FOUR):
        four = blocks[place : place + FOUR]
        took = [getattr(block, field) for block in four]
        if len(took) == FOUR and None not in took:
            for found, name in ((real, "is_on"), (sham, "is_sham")):
                difference = sum(
                    value if getattr(block, name) else -value
                    for block, value in zip(four, took, strict=True)
                )
                found.append(100 * difference / sum(took))
    return _mean(np.array(real)), _mean(np.array(sham))


def _mean(values: Values) -> Estimate:
    """Return the mean; the kernel of its error reaches over 4 (n / 100)^(2/9) neighbors.

    So begin Newey and West (Review of Economic Studies 61, 1994).
    """
    count, rest = len(values), values - values.mean()
    reach = int(4 * (count / 100) ** (2 / 9))
    variance = rest @ rest + 2 * sum(
        (1 - lag / (reach + 1)) * (rest[lag:] @ rest[:-lag]) for lag in range(1, reach + 1)
    )
    error = float(max(variance, 0.0) / count / (count - 1)) ** 0.5
    return Estimate(float(values.mean()), student_95(count - 1) * error, _DETECTED * error)
