"""Cost of something that is switched on and off in one process: blocks of pseudo-random order, regression, its error.

Each block has two switches that know nothing of each other: the real one, and a sham that does nothing. The time of a
step is regressed on both and on a slow drift, so the sham is a null control under the same noise. Blocks next to each
other are alike, so errors are those of Newey and West (Econometrica 55, 1987), with a Bartlett kernel.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profd.daemon.analyze.confidence import student_95

DRIFT_S = 30.0
"""The drift is linear between nodes so far apart."""
_DETECTED = 2.8  # errors of an effect that is found in 80 % of measurements at the level of 5 %
Values = NDArray[np.float64]


class Block(NamedTuple):
    """A planned block."""

    length_s: float
    is_on: bool
    is_sham: bool


class Taken(NamedTuple):
    """A block that was taken: what its whole steps took, ``from_s`` seconds after the start of the first.

    ``capped_s`` is their wall time, each step of more than the 99th percentile of all counted as that.
    """

    from_s: float
    is_on: bool
    is_sham: bool
    steps: int
    wall_s: float
    cpu_s: float
    capped_s: float


class Estimate(NamedTuple):
    """A change in percent, with half the width of its 95 % interval and what would have been found in 4 of 5 cases."""

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
    """Return blocks of about ``seconds``; each four in a row have both switches in all four positions, shuffled."""
    chance, blocks, left_s = random.Random(seed), list[Block](), seconds
    while left_s > 0:
        positions = [(is_on, is_sham) for is_on in (False, True) for is_sham in (False, True)]
        chance.shuffle(positions)
        blocks += [Block(chance.uniform(shortest_s, longest_s), *position) for position in positions]
        left_s -= sum(block.length_s for block in blocks[-4:])
    return blocks


def take_blocks(spans: Sequence[tuple[float, float, bool, bool]], ends_s: Values, cpu_s: Values) -> list[Taken]:
    """Return what the steps took that lie whole within each span (from, to, real, sham), of the loop's own clock.

    ``ends_s`` are the ends of the steps, ``cpu_s`` the CPU time of the process by then. A span without a whole step is
    left out.
    """
    taken = []
    lengths = np.diff(ends_s, prepend=ends_s[:1])
    capped = np.cumsum(np.minimum(lengths, np.quantile(lengths, 0.99)))
    for from_s, to_s, is_on, is_sham in spans:
        first, last = np.searchsorted(ends_s, from_s), np.searchsorted(ends_s, to_s, "right") - 1
        if last > first:
            wall, cpu = ends_s[last] - ends_s[first], cpu_s[last] - cpu_s[first]
            times = float(wall), float(cpu), float(capped[last] - capped[first])
            taken.append(Taken(from_s - spans[0][0], is_on, is_sham, int(last - first), *times))
    return taken


def estimate(blocks: Sequence[Taken], field: str) -> tuple[Estimate, Estimate]:
    """Return by how many percent the real switch and the sham lengthen one of the times of a step."""
    took = np.array([getattr(block, field) / block.steps for block in blocks])
    weights = np.sqrt([block.wall_s for block in blocks])
    switches = [[block.is_on for block in blocks], [block.is_sham for block in blocks]]
    columns = np.vstack([*switches, *_drift([block.from_s for block in blocks])]).astype(float).T
    found, errors = least_squares(columns * weights[:, None], took * weights)
    off = took[[not block.is_on for block in blocks]].mean()
    quantile = student_95(len(blocks) - columns.shape[1])
    real, sham = (
        Estimate(
            *(float(100 * value / off) for value in (found[place], quantile * errors[place], _DETECTED * errors[place]))
        )
        for place in (0, 1)
    )
    return real, sham


def _drift(at_s: Sequence[float]) -> list[Values]:
    """Return the columns of a line with nodes every ``DRIFT_S``."""
    nodes = np.linspace(0, max(at_s), max(round(max(at_s) / DRIFT_S), 1) + 1)
    return [np.interp(at_s, nodes, unit) for unit in np.eye(len(nodes))]


def least_squares(columns: Values, values: Values) -> tuple[Values, Values]:
    """Return the coefficients of ordinary least squares and their errors by Newey and West.

    The kernel reaches over 4 (n / 100)^(2/9) neighbors, as Newey and West (Review of Economic Studies 61, 1994) begin
    with; the errors are corrected for the number of columns.
    """
    count, width = columns.shape
    inverse = np.linalg.inv(columns.T @ columns)
    found = inverse @ columns.T @ values
    scores = columns * (values - columns @ found)[:, None]
    reach = int(4 * (count / 100) ** (2 / 9))
    middle = scores.T @ scores
    for lag in range(1, reach + 1):
        beside = scores[lag:].T @ scores[:-lag]
        middle += (1 - lag / (reach + 1)) * (beside + beside.T)
    variances = np.diag(inverse @ middle @ inverse) * count / (count - width)
    return found, np.sqrt(variances)
