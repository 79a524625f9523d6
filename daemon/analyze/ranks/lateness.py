"""Which rank of a job comes last, by how much of a step, and how sure that is.

The others wait for it, wherever they stand: so it is told by its own work, which is more than theirs, and not by their
waits. Knows no stacks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from profd.daemon.analyze.certainty.confidence import t_quantile
from profd.daemon.analyze.ranks.efforts import Effort, Place

LEAST_SURPLUS = 0.1
"""A rank is late by at least this part of a step: less is no more than ranks differ by on any machine."""

_FEWEST_PARTS = 4
_DOUBT = 0.05

_Parts = Sequence[float | None]


class Lateness(msgspec.Struct, frozen=True):
    """By what part of a step a rank works longer than the others do in the median, with its 95 % interval.

    ``is_of_cores`` says that it is CPU time: where the work has no stacks of its own, it tells. ``place`` is where most
    of the surplus went by, None where that has no stacks, ``place_surplus`` how much of a step that is.
    """

    rank: int
    surplus: float
    low: float
    high: float
    is_of_cores: bool
    place: Place | None
    place_surplus: float

    @property
    def is_sure(self) -> bool:
        """Whether the rank is surely late, and by enough to matter."""
        return self.low > 0 and self.surplus >= LEAST_SURPLUS


def lateness(efforts: Sequence[Effort], rank: int, *, of_cores: bool = False) -> Lateness | None:
    """Return how late a rank is, by its own work or (``of_cores``) by the CPU time that it uses.

    None where too little was seen of it, or of the others.
    """
    parts_of: Callable[[Effort], _Parts] = (lambda effort: effort.cores) if of_cores else (lambda effort: effort.own)
    late, others = _split(efforts, rank)
    differences = list(_differences(parts_of(late), [parts_of(effort) for effort in others]))
    if len(differences) < _FEWEST_PARTS:
        return None
    surplus = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    around = error * t_quantile(1 - _DOUBT / 2 / len(efforts), len(differences) - 1)
    place, place_surplus = _place(late, others)
    if of_cores and place_surplus < surplus / 2:
        place, place_surplus = None, 0.0
    return Lateness(rank, surplus, surplus - around, min(surplus + around, 1.0), of_cores, place, place_surplus)


def find_late(efforts: Sequence[Effort], *, cpu_tells: bool) -> tuple[Lateness, ...]:
    """Return the ranks that are surely late, the latest first; nothing where none is.

    ``cpu_tells`` where ranks sleep while they wait: then whoever uses more CPU time than the others works longer. That
    is asked only where no rank is seen to, as some libraries wait by running.
    """
    for of_cores in (False, True) if cpu_tells else (False,):
        judged = [lateness(efforts, effort.rank, of_cores=of_cores) for effort in efforts]
        late = [one for one in judged if one is not None and one.is_sure]
        if late:
            return tuple(sorted(late, key=lambda one: -one.surplus))
    return ()


def median_of_others(efforts: Sequence[Effort], rank: int) -> float | None:
    """Return the share of a step that the other ranks' own work takes in the median."""
    shares = [share for effort in efforts if effort.rank != rank if (share := own_share(effort)) is not None]
    return statistics.median(shares) if shares else None


def own_share(effort: Effort) -> float | None:
    """Return the share of a step that a rank's own work takes; None where nothing was seen of it."""
    seen = [share for share in effort.own if share is not None]
    return statistics.fmean(seen) if seen else None


def _split(efforts: Sequence[Effort], rank: int) -> tuple[Effort, list[Effort]]:
    late = next(effort for effort in efforts if effort.rank == rank)
    return late, [effort for effort in efforts if effort.rank != rank]


def _differences(late: _Parts, others: Sequence[_Parts]) -> Iterable[float]:
    """Yield by part by how much a rank is above the median of the others, where all of them were seen."""
    for own, *theirs in zip(late, *others, strict=True):
        known = [share for share in theirs if share is not None]
        if own is not None and known and len(known) == len(theirs):
            yield own - statistics.median(known)


def _place(late: Effort, others: Sequence[Effort]) -> tuple[Place | None, float]:
    """Return the place at which a rank spends most more of its step than the others do in the median."""
    surpluses = {
        place: share - statistics.median(effort.places.get(place, 0.0) for effort in others)
        for place, share in late.places.items()
    }
    if not surpluses:
        return None, 0.0
    place = max(surpluses, key=surpluses.__getitem__)
    return place, surpluses[place]
