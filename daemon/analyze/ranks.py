"""The own work of each rank, which rank comes last, and for how long the others wait.

Ranks of one job make their steps together, so shares of their time are shares of the same step. Compares nothing.

The others wait for it, wherever they stand: so it is told by its own work, which is more than theirs, and not by their
waits. Knows no stacks.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from profd.daemon.analyze.collectives import WaitIndex
from profd.daemon.analyze.confidence import margin, t_quantile
from profd.daemon.analyze.phases import PhaseIndex, own_frame
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, StackTotal, ThreadRow
from profd.daemon.store.stepfunction import sum_aggregates

PARTS = 24
"""How many parts a range of time is cut into: what differs between them by chance tells how sure a difference is."""

_CPU = "cpu_cores"


class Place(msgspec.Struct, frozen=True):
    """A function in a phase: the innermost of the user's in the stack, else the innermost of all."""

    phase: str
    function: str
    file: str


class OwnWork(msgspec.Struct, frozen=True):
    """What the main thread of a rank did.

    ``own`` is its own work in each part of the range, as a share of the time seen, ``cores`` the CPU time it used a
    second; None where nothing was seen. ``places`` are the shares of its own work over the whole range, ``frames``
    where each mostly stood; ``in_backward`` is the share in backward that may be work or wait.
    """

    rank: int
    processes: frozenset[int]
    samples: int
    own: tuple[float | None, ...]
    cores: tuple[float | None, ...]
    places: Mapping[Place, float]
    frames: Mapping[Place, FrameRow]
    in_backward: float


def take_own_work(reader: RunReader, selection: Selection, waits: WaitIndex, phases: PhaseIndex) -> tuple[OwnWork, ...]:
    """Return the efforts of all ranks over a selection's range of time, by rank.

    ``selection`` has both ends of its range; its phase and threads count for nothing.
    """
    threads: defaultdict[int, list[ThreadRow]] = defaultdict(list)
    for thread in reader.main_threads():
        process = reader.processes[thread.process]
        if process.rank is not None and selection.takes_process(process):
            threads[process.rank].append(thread)
    parts = list(_parts(selection))
    totals = _totals(reader, parts, [row for rows in threads.values() for row in rows])
    return tuple(
        _effort(reader, rank, threads[rank], parts, [part[rank] for part in totals], waits, phases)
        for rank in sorted(threads)
    )


def _parts(selection: Selection) -> Iterable[tuple[int, int]]:
    """Yield the parts of a selection's range of time."""
    from_ns, to_ns = selection.from_ns or 0, selection.to_ns or 0
    edges = [from_ns + (to_ns - from_ns) * number // PARTS for number in range(PARTS + 1)]
    return itertools.pairwise(edges)


def _totals(
    reader: RunReader, parts: Iterable[tuple[int, int]], threads: Iterable[ThreadRow]
) -> list[Mapping[int, list[StackTotal]]]:
    """Return by part of the range and by rank what was seen."""
    ranks = {thread.id: reader.processes[thread.process].rank for thread in threads}
    found: list[Mapping[int, list[StackTotal]]] = []
    for from_ns, to_ns in parts:
        of_rank: defaultdict[int, list[StackTotal]] = defaultdict(list)
        for total in reader.stack_totals(from_ns, to_ns, ranks.keys()):
            of_rank[ranks[total.thread] or 0].append(total)
        found.append(of_rank)
    return found


def _effort(
    reader: RunReader,
    rank: int,
    threads: list[ThreadRow],
    parts: list[tuple[int, int]],
    totals: list[list[StackTotal]],
    waits: WaitIndex,
    phases: PhaseIndex,
) -> OwnWork:
    """Return the effort of one rank from what was seen of it in each part."""
    spent_ns: Counter[int] = Counter()
    for total in (total for part in totals for total in part):
        spent_ns[total.stack] += total.duration_ns
    whole_ns = spent_ns.total() or 1
    places, frames = _places(
        reader, {stack: spent_ns[stack] for stack in spent_ns if not waits.may_wait(stack)}, phases
    )
    return OwnWork(
        rank=rank,
        processes=frozenset(thread.process for thread in threads),
        samples=sum(total.samples for part in totals for total in part),
        own=tuple(_own_share(part, waits) for part in totals),
        cores=_cores(reader, threads, parts),
        places={place: time_ns / whole_ns for place, time_ns in places.items()},
        frames=frames,
        in_backward=sum(spent_ns[stack] for stack in spent_ns if waits.is_backward(stack)) / whole_ns,
    )


def _own_share(totals: list[StackTotal], waits: WaitIndex) -> float | None:
    """Return the share of what was seen that is surely no wait for others; None where nothing was."""
    whole_ns = sum(total.duration_ns for total in totals)
    own_ns = sum(total.duration_ns for total in totals if not waits.may_wait(total.stack))
    return own_ns / whole_ns if whole_ns else None


def _places(
    reader: RunReader, spent_ns: Mapping[int, int], phases: PhaseIndex
) -> tuple[Mapping[Place, int], Mapping[Place, FrameRow]]:
    """Return the time that went by at each place, and the frame where most of it did, from the time by stack."""
    at_frame: defaultdict[Place, Counter[int]] = defaultdict(Counter)
    for stack, time_ns in spent_ns.items():
        frames = reader.frames_of(stack)
        frame = own_frame(frames) or frames[-1]
        at_frame[Place(phases.of_stack(stack), frame.function, frame.file)][frame.id] += time_ns
    heaviest = {place: reader.frames[max(times, key=times.__getitem__)] for place, times in at_frame.items()}
    return {place: times.total() for place, times in at_frame.items()}, heaviest


def _cores(reader: RunReader, threads: list[ThreadRow], parts: list[tuple[int, int]]) -> tuple[float | None, ...]:
    """Return the CPU time a second that main threads used in each part; None where it was not read."""
    known = {(thread.process, thread.os_tid) for thread in threads}
    series = [row.id for row in reader.series.values() if row.name == _CPU and (row.process, row.os_tid) in known]
    used = [reader.steps(one, parts[0][0], parts[-1][1]) for one in series]
    return tuple(sum_aggregates(steps.over(*part) for steps in used).mean for part in parts)


LEAST_SURPLUS = 0.1
"""A rank is late by at least this part of a step: less is no more than ranks differ by on any machine."""

_FEWEST_PARTS = 4
_DOUBT = 0.05

_Parts = Sequence[float | None]


class StragglerTest(msgspec.Struct, frozen=True):
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


def lateness(efforts: Sequence[OwnWork], rank: int, *, of_cores: bool = False) -> StragglerTest | None:
    """Return how late a rank is, by its own work or (``of_cores``) by the CPU time that it uses.

    None where too little was seen of it, or of the others.
    """
    parts_of: Callable[[OwnWork], _Parts] = (lambda effort: effort.cores) if of_cores else (lambda effort: effort.own)
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
    return StragglerTest(rank, surplus, surplus - around, min(surplus + around, 1.0), of_cores, place, place_surplus)


def find_late(efforts: Sequence[OwnWork], *, cpu_tells: bool) -> tuple[StragglerTest, ...]:
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


def median_of_others(efforts: Sequence[OwnWork], rank: int) -> float | None:
    """Return the share of a step that the other ranks' own work takes in the median."""
    shares = [share for effort in efforts if effort.rank != rank if (share := own_share(effort)) is not None]
    return statistics.median(shares) if shares else None


def own_share(effort: OwnWork) -> float | None:
    """Return the share of a step that a rank's own work takes; None where nothing was seen of it."""
    seen = [share for share in effort.own if share is not None]
    return statistics.fmean(seen) if seen else None


def _split(efforts: Sequence[OwnWork], rank: int) -> tuple[OwnWork, list[OwnWork]]:
    late = next(effort for effort in efforts if effort.rank == rank)
    return late, [effort for effort in efforts if effort.rank != rank]


def _differences(late: _Parts, others: Sequence[_Parts]) -> Iterable[float]:
    """Yield by part by how much a rank is above the median of the others, where all of them were seen."""
    for own, *theirs in zip(late, *others, strict=True):
        known = [share for share in theirs if share is not None]
        if own is not None and known and len(known) == len(theirs):
            yield own - statistics.median(known)


def _place(late: OwnWork, others: Sequence[OwnWork]) -> tuple[Place | None, float]:
    """Return the place at which a rank spends most more of its step than the others do in the median."""
    surpluses = {
        place: share - statistics.median(effort.places.get(place, 0.0) for effort in others)
        for place, share in late.places.items()
    }
    if not surpluses:
        return None, 0.0
    place = max(surpluses, key=surpluses.__getitem__)
    return place, surpluses[place]


class Waiting(msgspec.Struct, frozen=True):
    """The share of all ranks' time in which they wait: ``value`` is the least that the CPU time leaves open.

    Of what a rank does in backward only its CPU time tells, and how much of that is its other work is not known.
    """

    value: float
    low: float
    high: float


def take_waiting(efforts: Sequence[OwnWork], core_pressure: float) -> Waiting | None:
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
