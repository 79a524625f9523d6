"""For how long ranks wait for one another, all together: the exchange itself, and steps that are uneven by turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from profd.daemon.analyze.certainty.confidence import margin
from profd.daemon.analyze.ranks.efforts import Effort


class Waiting(msgspec.Struct, frozen=True):
    """The share of all ranks' time in which they wait: ``value`` is the least that the CPU time leaves open.

    Of what a rank does in backward only its CPU time tells, and how much of that is its other work is not known.
    """

    value: float
    low: float
    high: float


def take_waiting(efforts: Sequence[Effort], core_pressure: float) -> Waiting | None:
    """Return how long ranks wait, where they sleep while they do; None where nothing was seen or read.

    ``core_pressure`` is the share of time in which some thread of the machine had to wait for a core: so long a rank
    that sleeps may have wanted to compute.
    """
    parts = [
        (own, cores)
        for effort in efforts
        for own, cores in zip(effort.own, effort.cores, strict=True)
        if own is not None and cores is not None
    ]
    if len(parts) < 2:
        return None
    leasts = [max(1 - own - cores, 0.0) for own, cores in parts]
    value = statistics.fmean(leasts)
    around = margin(statistics.stdev(leasts) / math.sqrt(len(leasts)))
    most = statistics.fmean(min(1 - own, 1 - min(cores, 1.0)) for own, cores in parts)
    return Waiting(value, max(value - around - core_pressure, 0.0), min(most + around, 1.0))
