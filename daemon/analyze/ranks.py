"""The own work of each rank, which rank comes last, and for how long the others wait.

Ranks of one job make their steps together, so shares of their time are shares of the same step. All others wait for a
late rank, wherever they stand: it shows by its own work, which is more than theirs, and not by their waits.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from profd.daemon.analyze.collectives import WaitIndex
from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.analyze.phases import PhaseIndex, own_frame
from profd.daemon.analyze.selection import Selection, cut
from profd.daemon.analyze.series import cpu_series, mean_of_known
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, StackTotal, ThreadRow
from profd.daemon.store.stepfunction import sum_aggregates

PARTS = 24
"""How many parts a range of time is cut into: what differs between them by chance shows how sure a difference is."""


class Place(msgspec.Struct, frozen=True):
    """A function in a phase: the innermost of the user's in the stack, else the innermost of all."""

    phase: str
    function: str
    file: str


class OwnWork(msgspec.Struct, frozen=True):
    """What the main thread of a rank did.

    ``own`` is its own work in each part of the range, as a share of the time seen, ``cores`` the CPU time it used a
    second; None where nothing was seen. ``places`` are the shares of its own work over the whole range, ``frames``
    where each mostly stood.
    """

    rank: int
    processes: frozenset[int]
    samples: int
    own: tuple[float | None, ...]
    cores: tuple[float | None, ...]
    places: Mapping[Place, float]
    frames: Mapping[Place, FrameRow]

    @property
    def own_share(self) -> float | None:
        """The share of a step that the rank's own work takes; None where nothing was seen of it."""
        return mean_of_known(self.own)


def take_own_work(reader: RunReader, selection: Selection, waits: WaitIndex, phases: PhaseIndex) -> tuple[OwnWork, ...]:
    """Return the own work of all ranks, by rank; ``selection`` has both ends; its phase and threads do not count."""
    threads: defaultdict[int, list[ThreadRow]] = defaultdict(list)
    for thread in reader.main_threads():
        process = reader.processes[thread.process]
        if process.rank is not None and selection.takes_process(process):
            threads[process.rank].append(thread)
    ranks = {thread.id: rank for rank, rows in threads.items() for thread in rows}
    parts = cut(selection.from_ns or 0, selection.to_ns or 0, PARTS)
    totals: defaultdict[int, list[list[StackTotal]]] = defaultdict(lambda: [[] for _ in parts])
    for number, part in enumerate(parts):
        for total in reader.stack_totals(*part, ranks.keys()):
            totals[ranks[total.thread]][number].append(total)
    return tuple(_own_work(reader, rank, threads[rank], parts, totals[rank], waits, phases) for rank in sorted(threads))


def _own_work(
    reader: RunReader,
    rank: int,
    threads: list[ThreadRow],
    parts: list[tuple[int, int]],
    totals: list[list[StackTotal]],
    waits: WaitIndex,
    phases: PhaseIndex,
) -> OwnWork:
    shares: list[float | None] = []
    at_frame: defaultdict[Place, Counter[int]] = defaultdict(Counter)
    whole_ns = 0
    for part in totals:
        own = [total for total in part if not waits.may_wait(total.stack)]
        part_ns = sum(total.duration_ns for total in part)
        whole_ns += part_ns
        shares.append(sum(total.duration_ns for total in own) / part_ns if part_ns else None)
        for total in own:
            frames = reader.frames_of(total.stack)
            frame = own_frame(frames) or frames[-1]
            place = Place(phases.of_stack(total.stack), frame.function, frame.file)
            at_frame[place][frame.id] += total.duration_ns
    used = [reader.steps(one, parts[0][0], parts[-1][1]) for one in cpu_series(reader, threads)]
    return OwnWork(
        rank=rank,
        processes=frozenset(thread.process for thread in threads),
        samples=sum(total.samples for part in totals for total in part),
        own=tuple(shares),
        cores=tuple(sum_aggregates(steps.over(*part) for steps in used).mean for part in parts),
        places={place: times.total() / (whole_ns or 1) for place, times in at_frame.items()},
        frames={place: reader.frames[max(times, key=times.__getitem__)] for place, times in at_frame.items()},
    )


LEAST_SURPLUS = 0.1
"""A rank is late by at least this part of a step: less is no more than ranks differ by on any machine."""


class StragglerTest(msgspec.Struct, frozen=True):
    """By what part of a step a rank works longer than the others do in the median, with its 95 % interval.

    ``is_of_cores`` says that it is CPU time: that shows work which has no stacks of its own. ``place`` is where most
    of the surplus went by, None where that has no stacks, ``place_surplus`` how much of a step that is.
    """

    rank: int
    surplus: float
    low: float
    high: float
    is_of_cores: bool
    place: Place | None
    place_surplus: float


def lateness(ranks: Sequence[OwnWork], rank: int, *, of_cores: bool = False) -> StragglerTest | None:
    """Return how late a rank is, by its own work or its CPU time (``of_cores``); None where too little was seen."""
    late = next(work for work in ranks if work.rank == rank)
    others = [work for work in ranks if work.rank != rank]
    differences = []  # by part to the median of the others, where all of them were seen
    for own, *theirs in zip(*(one.cores if of_cores else one.own for one in (late, *others)), strict=True):
        known = [share for share in theirs if share is not None]
        if own is not None and known and len(known) == len(theirs):
            differences.append(own - statistics.median(known))
    if len(differences) < 4:
        return None
    surplus = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    around = error * t_quantile(1 - 0.05 / 2 / len(ranks), len(differences) - 1)
    usual = {place: statistics.median(work.places.get(place, 0.0) for work in others) for place in late.places}
    surpluses = {place: share - usual[place] for place, share in late.places.items()}
    place = max(surpluses, key=surpluses.__getitem__, default=None)
    if place is not None and of_cores and surpluses[place] < surplus / 2:
        place = None
    place_surplus = surpluses[place] if place else 0.0
    return StragglerTest(rank, surplus, surplus - around, min(surplus + around, 1.0), of_cores, place, place_surplus)


def find_late(ranks: Sequence[OwnWork], *, by_cpu: bool) -> tuple[StragglerTest, ...]:
    """Return the ranks that are surely late, the latest first; nothing where none is.

    ``by_cpu`` where ranks sleep while they wait: then a rank that uses more CPU time than the others works longer.
    That counts only where no rank is seen to work longer, as some libraries wait by spinning.
    """
    for of_cores in (False, True) if by_cpu else (False,):
        judged = [lateness(ranks, work.rank, of_cores=of_cores) for work in ranks]
        late = [one for one in judged if one is not None and one.low > 0 and one.surplus >= LEAST_SURPLUS]
        if late:
            return tuple(sorted(late, key=lambda one: -one.surplus))
    return ()


def median_of_others(ranks: Sequence[OwnWork], rank: int) -> float | None:
    """Return the share of a step that the other ranks' own work takes in the median."""
    shares = [share for work in ranks if work.rank != rank if (share := work.own_share) is not None]
    return statistics.median(shares) if shares else None
