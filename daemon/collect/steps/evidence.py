"""How much speaks for an integer being a counter rather than chance, in bits. Pure.

Three things speak for one: that it grows and grows (n numbers in a random order do so in one of n! cases), that it
grows by as much as its rate says (a number that is anywhere in its range comes so close in few cases), and that many of
its values, with torn ones between them, go on growing about as fast as the ones before did.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.sightings import Sighting

Pair = tuple[Sighting, Sighting]

PACE_SHARE = 0.1
# From one link of a chain to the next: loops slow down, and other programs take their time.
DRIFT_SHARE = 0.35
LEAST_PACED = 5
# What each sighting that is left out takes from a chain as it is looked for.
SKIP_BITS = 1.5
MOST_LINK_BITS = 10.0


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


class Chain(NamedTuple):
    """Sightings of a variable, oldest first, each of which is where the two before it led to, and what that says."""

    bits: float
    sightings: tuple[Sighting, ...]


def paced_chain(track: Sequence[Sighting]) -> Chain:
    """Return the chain in a track that says most; those that are torn are left out of it.

    Of a loop of hundreds of steps a second half of the sightings are torn, so neighbors are seldom both true.
    """
    values = [sighting.value for sighting in track]
    chance = _Chance(values)
    chain, best = _whole_chain(track, chance) or _best_chain(track, chance)
    if len({values[index] for index in chain}) < LEAST_PACED:
        return Chain(0.0, ())
    # In the more ways some can be left out, the more often chance leaves a chain.
    span = chain[-1] - chain[0] + 1
    told = best + SKIP_BITS * (span - len(chain)) - math.log2(math.comb(span, len(chain)))
    return Chain(told, tuple(track[index] for index in chain))


_Found = tuple[Sequence[int], float]
"""Which sightings of a track are a chain, and what it says but for those that it leaves out."""


def _whole_chain(track: Sequence[Sighting], chance: _Chance) -> _Found | None:
    """Return the chain of all sightings, None where they are none: to see that costs a hundredth of a search."""
    if len(track) < 2 or track[1].value < track[0].value:
        return None
    bits = [_told(*three, chance) for three in zip(track, track[1:], track[2:], strict=False)]
    told = [each for each in bits if each is not None]
    return (range(len(track)), sum(told)) if len(told) == len(bits) else None


def _best_chain(track: Sequence[Sighting], chance: _Chance) -> _Found:
    """Search for the chain that says most."""
    ends: list[dict[int, _Link]] = [{} for _ in track]
    best, end = 0.0, (0, 0)
    for last in range(len(track)):
        for middle in range(last):
            if track[middle].value <= track[last].value:
                ends[last][middle] = link = _link(track, ends[middle], (middle, last), chance)
                best, end = max((best, end), (link.bits, (middle, last)))
    return (_way_back(ends, *end), best) if best else ((), 0.0)


class _Link(NamedTuple):
    """What the best chain says that ends with two sightings, and which one is before these; None: they begin it."""

    bits: float
    first: int | None


def _link(track: Sequence[Sighting], before: Mapping[int, _Link], ends: tuple[int, int], chance: _Chance) -> _Link:
    """Return the best chain that ends with two sightings, by the chains ``before`` that end with the first of them."""
    middle, last = ends
    skipped = SKIP_BITS * (last - middle - 1)
    best = _Link(-skipped, None)
    for first, link in before.items():
        told = _told(track[first], track[middle], track[last], chance)
        if told is not None:
            best = max(best, _Link(link.bits + told - skipped, first), key=lambda one: one.bits)
    return best


def _told(first: Sighting, before: Sighting, after: Sighting, chance: _Chance) -> float | None:
    """Return what it says that a sighting is where the two before it led to, in bits; None where it is not."""
    least, most = _expected(first, before, after)
    grown = after.value - before.value
    if not least <= grown <= most:
        return None
    return chance.bits(before.value, least, most) if grown else 0.0


def _way_back(ends: Sequence[Mapping[int, _Link]], middle: int, last: int) -> list[int]:
    """Return the sightings of a chain by its last two."""
    chain = [last, middle]
    while (first := ends[last][middle].first) is not None:
        chain.append(first)
        middle, last = first, middle
    return chain[::-1]


class _Chance:
    """How probable a number within bounds is by chance: where numbers of all sizes, or of all orders, are alike."""

    def __init__(self, values: Sequence[int]) -> None:
        self._range = max(values) - min(values) + 1
        self._orders = math.log2(max(map(abs, values)) + 2)

    def bits(self, value: int, least: float, most: float) -> float:
        """Return what it says that a value grew by something between two bounds."""
        chance = (most - least + 1) / self._range
        if value >= 0:
            chance = max(chance, math.log2((value + most + 2) / (value + least + 1)) / self._orders)
        return min(max(-math.log2(chance), 0.0), MOST_LINK_BITS)


def _expected(first: Sighting, before: Sighting, after: Sighting) -> tuple[float, float]:
    """Return by how much a counter grows at least and at most up to a sighting, by how it grew before."""
    grown = before.value - first.value
    seen_s, error_s = (before.at_ns - first.at_ns) / SECOND_NS, (before.error_ns + first.error_ns) / SECOND_NS
    took_s, margin_s = (after.at_ns - before.at_ns) / SECOND_NS, (after.error_ns + before.error_ns) / SECOND_NS
    slowest = max(grown - 1, 0) / (seen_s + error_s) * (1 - DRIFT_SHARE)
    fastest = (grown + 1) / max(seen_s - error_s, 1e-9) * (1 + DRIFT_SHARE)
    return max(slowest * (took_s - margin_s) - 1, 0.0), fastest * (took_s + margin_s) + 1
