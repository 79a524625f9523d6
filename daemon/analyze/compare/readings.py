"""What is compared beside time: memory, GPUs, operators of windows. Here numbers of both runs are judged.

Where several values of each run tell how uneven a number is, its difference has bounds, which hold for all such numbers
at once. Where there is one value a run, as of a peak, nothing tells that: a change is what is larger than ``least``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from profd.daemon.analyze.certainty.confidence import t_quantile
from profd.daemon.analyze.compare.blocks import Mean


class Reading(msgspec.Struct, frozen=True):
    """A number of both runs; ``kind`` is memory, gpu or operator, ``name`` says whose it is, ``measure`` what it is.

    ``unit`` is bytes, bytes/s, share, or s/step. ``low`` and ``high`` bound the difference; None where nothing tells
    how uneven the number is.
    """

    kind: str
    name: str
    measure: str
    unit: str
    base: float
    new: float
    difference: float
    low: float | None
    high: float | None
    is_significant: bool


class Pair(msgspec.Struct, frozen=True):
    """A number of both runs before it is judged.

    ``freedom`` are the degrees of freedom of its errors, 0 where they are not known. A difference below ``least`` is
    no change.
    """

    kind: str
    name: str
    measure: str
    unit: str
    base: Mean
    new: Mean
    freedom: int
    least: float


def judged(pairs: Sequence[Pair], error_rate: float) -> tuple[Reading, ...]:
    """Judge numbers: with probability ``error_rate`` at most, chance makes one of those that have bounds a change."""
    bounded = sum(pair.freedom > 0 for pair in pairs)
    return tuple(_judged(pair, error_rate / max(bounded, 1)) for pair in pairs)


def _judged(pair: Pair, error_rate: float) -> Reading:
    difference = pair.new.value - pair.base.value
    margin = 0.0
    if pair.freedom > 0:
        margin = t_quantile(1 - error_rate / 2, pair.freedom) * math.hypot(pair.base.error, pair.new.error)
    return Reading(
        kind=pair.kind,
        name=pair.name,
        measure=pair.measure,
        unit=pair.unit,
        base=pair.base.value,
        new=pair.new.value,
        difference=difference,
        low=difference - margin if pair.freedom > 0 else None,
        high=difference + margin if pair.freedom > 0 else None,
        is_significant=abs(difference) > margin and abs(difference) >= pair.least,
    )
