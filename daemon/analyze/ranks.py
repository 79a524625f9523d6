"""The own work of each rank, which rank comes last, and for how long the others wait.

Ranks of one job make their steps together, so shares of their time are shares of the same step. All
others wait for a late rank, in any function. So a late rank shows by its own work, which is more
than theirs, and not by their waits.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from profd.daemon.analyze.collectives import WaitIndex
from profd.daemon.analyze.confidence import standard_error, t_quantile
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex, own_frame
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import mean_of_known, of_threads
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, StackTotal, ThreadRow
from profd.daemon.store.stepfunction import THREAD_CPU, StepFunction, sum_aggregates
from profd.daemon.timerange import TimeRange

PARTS = 24
"""How many parts a range of time is cut into.

Their differences by chance show how sure a difference is.
"""


class Place(msgspec.Struct, frozen=True):
    """A function in a phase: the user's innermost in the stack, else the innermost of all."""

    phase: str
    function: str
    file: str


class OwnWork(msgspec.Struct, frozen=True):
    """What the main thread of a rank did.

    ``own`` is its own work in each part of the range, as a share of the time seen, ``cores`` the
    CPU time per second, ``gpu`` the share of its GPU's multiprocessors at work; None if nothing was
    seen. ``clock_hz`` is their mean clock. ``places`` are the shares of its own work over the whole
    range, ``frames`` the frame in each place with the most time.
    """

    rank: int
    processes: frozenset[int]
    samples: int
    own: tuple[float | None, ...]
    cores: tuple[float | None, ...]
    places: Mapping[Place, float]
    frames: Mapping[Place, FrameRow]
    gpu: tuple[float | None, ...] = ()
    clock_hz: float | None = None

    @property
    def own_share(self) -> float | None:
        """The share of a step that the rank's own work takes; None if nothing was seen of it."""
        return mean_of_known(self.own)


def take_own_work(
    reader: RunReader, selection: Selection, waits: WaitIndex, phases: PhaseIndex
) -> tuple[OwnWork, ...]:
    """Return the own work of all ranks, by rank.

    ``selection`` has both ends; its phase and threads do not count.
    """
    tracks, ranks = GpuTracks(reader), dict[int, _RankStacks]()
    for thread in reader.main_threads():
        process = reader.processes[thread.process]
        if process.rank is not None and selection.takes_process(process):
            rank = ranks.setdefault(process.rank, _RankStacks(process.rank))
            rank.threads.append(thread)
            rank.devices.update(tracks.used_by(thread.process))
    rank_of = {thread.id: rank for rank in ranks.values() for thread in rank.threads}
    parts = selection.time.cut(PARTS)
    for number, part in enumerate(parts):
        for total in reader.stack_totals(part, rank_of.keys()):
            rank_of[total.thread].totals[number].append(total)
    return tuple(_own_work(reader, ranks[rank], parts, waits, phases) for rank in sorted(ranks))


@dataclass
class _RankStacks:
    """A rank, and the time in stacks of its main threads in each part of the range."""

    rank: int
    threads: list[ThreadRow] = field(default_factory=list)
    devices: set[str] = field(default_factory=set)
    totals: list[list[StackTotal]] = field(default_factory=lambda: [[] for _ in range(PARTS)])


def _own_work(
    reader: RunReader,
    rank: _RankStacks,
    parts: Sequence[TimeRange],
    waits: WaitIndex,
    phases: PhaseIndex,
) -> OwnWork:
    whole = TimeRange(parts[0].from_ns, parts[-1].to_ns)
    processes = frozenset(thread.process for thread in rank.threads)
    every = list(itertools.chain.from_iterable(rank.totals))
    seen_ns = sum(total.duration_ns for total in every)
    at_frame = _own_time_at(reader, every, waits, phases)
    used = [
        reader.steps(one, whole) for one in of_threads(reader, rank.threads, THREAD_CPU).values()
    ]
    active = _steps_of(reader, SM_ACTIVE, rank.devices, whole)
    clocks = _steps_of(reader, SM_CLOCK, rank.devices, whole)
    return OwnWork(
        rank.rank,
        processes,
        samples=sum(total.samples for total in every),
        own=tuple(_own_part(part, waits) for part in rank.totals),
        cores=tuple(sum_aggregates(one.over(part) for one in used).mean for part in parts),
        gpu=tuple(mean_of_known([one.over(part).mean for one in active]) for part in parts),
        clock_hz=mean_of_known([one.over(whole).mean for one in clocks]),
        places={place: ns.total() / (seen_ns or 1) for place, ns in at_frame.items()},
        frames={
            place: reader.frames[max(ns, key=ns.__getitem__)] for place, ns in at_frame.items()
        },
    )


def _own_part(totals: Sequence[StackTotal], waits: WaitIndex) -> float | None:
    """Return the share of a rank's own work in the time that it was seen; None without any."""
    seen_ns = sum(total.duration_ns for total in totals)
    own_ns = sum(total.duration_ns for total in totals if not waits.may_wait(total.stack))
    return own_ns / seen_ns if seen_ns else None


def _own_time_at(
    reader: RunReader, totals: Iterable[StackTotal], waits: WaitIndex, phases: PhaseIndex
) -> dict[Place, Counter[int]]:
    """Return the time of a rank's own work by place, and there by frame."""
    at_frame: defaultdict[Place, Counter[int]] = defaultdict(Counter)
    for total in totals:
        if not waits.may_wait(total.stack):
            frames = reader.frames_of(total.stack)
            frame = own_frame(frames) or frames[-1]
            place = Place(phases.of_stack(total.stack), frame.function, frame.file)
            at_frame[place][frame.id] += total.duration_ns
    return at_frame


def _steps_of(
    reader: RunReader, name: str, devices: Iterable[str], whole: TimeRange
) -> list[StepFunction]:
    found = [reader.find_series(name, device=device) for device in sorted(devices)]
    return [reader.steps(series.id, whole) for series in found if series]


OWN, CORES, GPU = "own", "cores", "gpu"  # the fields of OwnWork that are compared
"""What ranks are compared by: work in stacks, CPU time, or what their GPUs compute."""
SM_ACTIVE, SM_CLOCK = "gpu_sm_active_share", "gpu_sm_clock_hz"
LEAST_SURPLUS = 0.1
"""A rank is late by at least this part of a step: ranks differ by less on any machine."""


class StragglerTest(msgspec.Struct, frozen=True):
    """By what part of a step a rank works longer than the median of the others.

    ``low`` to ``high`` is the 95 % interval. ``measure`` is OWN, CORES or GPU: the last two show
    work that has no stacks of its own. ``place`` has most of the surplus, None if no stacks show
    it, and ``place_surplus`` is how much of a step it has.
    """

    rank: int
    surplus: float
    low: float
    high: float
    measure: str
    place: Place | None
    place_surplus: float


def lateness(ranks: Sequence[OwnWork], rank: int, measure: str = OWN) -> StragglerTest | None:
    """Return how late a rank is by a measure; None if too little was seen."""
    late = next(work for work in ranks if work.rank == rank)
    others = [work for work in ranks if work.rank != rank]
    differences = _differences(late, others, measure)
    if len(differences) < 4:
        return None
    surplus = statistics.fmean(differences)
    around = standard_error(differences) * t_quantile(
        1 - 0.05 / 2 / len(ranks), len(differences) - 1
    )
    surpluses = {
        place: share - statistics.median(work.places.get(place, 0.0) for work in others)
        for place, share in late.places.items()
    }
    place = max(surpluses, key=surpluses.__getitem__, default=None)
    if place is not None and measure != OWN and surpluses[place] < surplus / 2:
        place = None
    return StragglerTest(
        rank,
        surplus,
        low=surplus - around,
        high=min(surplus + around, 1.0),
        measure=measure,
        place=place,
        place_surplus=surpluses[place] if place else 0.0,
    )


def _differences(late: OwnWork, others: Sequence[OwnWork], measure: str) -> list[float]:
    """Return by how much a rank is above the median of the others, by part.

    Parts in which one of them was not seen do not count.
    """
    found = []
    for own, *theirs in zip(*(getattr(work, measure) for work in (late, *others)), strict=True):
        known = [share for share in theirs if share is not None]
        if own is not None and known and len(known) == len(theirs):
            found.append(own - statistics.median(known))
    return found


def find_late(ranks: Sequence[OwnWork], *, by_cpu: bool) -> tuple[StragglerTest, ...]:
    """Return the ranks that are surely late, the latest first.

    ``by_cpu`` says that ranks sleep while they wait: then a rank that uses more CPU time than the
    others works longer. On GPUs a rank works longer if its GPU does: while the others wait, their
    GPUs run a kernel that exchanges data, which keeps few multiprocessors at work. Both count only
    if no rank is seen to work longer, because some libraries wait by spinning.
    """
    for measure in (OWN, CORES if by_cpu else GPU):
        judged = [lateness(ranks, work.rank, measure) for work in ranks]
        late = [
            one
            for one in judged
            if one is not None and one.low > 0 and one.surplus >= LEAST_SURPLUS
        ]
        if late:
            return tuple(sorted(late, key=lambda one: -one.surplus))
    return ()


def median_of_others(ranks: Sequence[OwnWork], rank: int) -> float | None:
    """Return the share of a step that the other ranks' own work takes in the median."""
    shares = [share for work in ranks if work.rank != rank if (share := work.own_share) is not None]
    return statistics.median(shares) if shares else None
