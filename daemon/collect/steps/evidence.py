"""How much speaks for an integer being a counter rather than chance, in bits. Pure.

Two things speak for one: that it grows and grows (n numbers in a random order do so in one of n! cases), and that it
grows by as much as its rate says (a number that is anywhere in its range comes so close in few cases).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.sightings import Sighting

Pair = tuple[Sighting, Sighting]

PACE_SHARE = 0.1
LEAST_PACED = 5


def order_bits(values: int, left_out: int) -> float:
    """Return what a run of so many growing values says, where so many others had to be left out of it."""
    return math.log2(math.factorial(values) / math.comb(values + left_out, left_out))


def pace_per_s(pairs: Sequence[Pair]) -> float:
    """Return the usual rate of a variable between neighbors, by those between which it grew; 0 where it never did."""
    rates = [
        (after.value - before.value) * SECOND_NS / (after.at_ns - before.at_ns)
        for before, after in pairs
        if after.value > before.value
    ]
    return statistics.median(rates) if rates else 0.0


def is_paced(rate_per_s: float, before: Sighting, after: Sighting) -> bool:
    """Say whether a variable grew by what its rate says, as exactly as its sightings tell."""
    grown = after.value - before.value
    return grown >= 0 and abs(grown - _made(rate_per_s, before, after)) <= _slack(rate_per_s, before, after)


def pace_bits(rate_per_s: float, pairs: Sequence[Pair]) -> float:
    """Return what it says that a variable grew by its rate between most neighbors.

    The rate was taken from the same sightings, so the best of them says nothing; nor do those that fit anyhow.
    """
    paced = [pair for pair in pairs if is_paced(rate_per_s, *pair)]
    if len({after.value for _, after in paced}) < LEAST_PACED:
        return 0.0
    values = [sighting.value for pair in pairs for sighting in pair]
    width = max(values) - min(values) + 1
    bits = sorted(max(math.log2(width / (2 * _slack(rate_per_s, *pair) + 1)), 0.0) for pair in paced)
    return sum(bits[:-1]) - math.log2(math.comb(len(pairs), len(paced)))


def _made(rate_per_s: float, before: Sighting, after: Sighting) -> float:
    return rate_per_s * (after.at_ns - before.at_ns) / SECOND_NS


def _slack(rate_per_s: float, before: Sighting, after: Sighting) -> float:
    """Return by how much the growth of a steady counter may differ from what its rate says."""
    moments = rate_per_s * (before.error_ns + after.error_ns) / SECOND_NS
    return 1 + moments + PACE_SHARE * _made(rate_per_s, before, after)
