"""The own work of each rank, which rank comes last, and for how long the others wait.

Ranks of one job make their steps together, so shares of their time are shares of the same step. All
others wait for a late rank, wherever they stand: it shows by its own work, which is more than
theirs, and not by their waits.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from profd.daemon.analyze.collectives import WaitIndex
from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex, own_frame
from profd.daemon.analyze.selection import Selection, cut
from profd.daemon.analyze.series import cpu_series, mean_of_known, points_of
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import COLLECTIVES_BEHIND
from profd.daemon.store.rows import FrameRow, StackTotal, ThreadRow
from profd.daemon.store.stepfunction import StepFunction, sum_aggregates

PARTS = 24
"""How many parts a range of time is cut into.

What differs between parts by chance shows how sure a difference is.
"""


class Place(msgspec.Struct, frozen=True):
    """A function in a phase: the user's innermost in the stack, else the innermost of all."""

    phase: str
    function: str
    file: str


class OwnWork(msgspec.Struct, frozen=True):
    """What the main thread of a rank did.

    ``own`` is its own work in each part of the range, as a share of the time seen, ``cores`` the
    CPU time it used a second, ``gpu`` the share of its GPU's multiprocessors at work; None where
    nothing was seen. ``clock_hz`` is the mean clock of these, ``behind`` how often NCCL's counts
    had it behind all others, of how many times. ``places`` are the shares of its own work over the
    whole range, ``frames`` where each mostly stood.
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
    behind: tuple[int, int] = (0, 0)

    @property
    def own_share(self) -> float | None:
        """The share of a step that the rank's own work takes; None where nothing was seen of it."""
        return mean_of_known(self.own)


def take_own_work(
    reader: RunReader, selection: Selection, waits: WaitIndex, phases: PhaseIndex
) -> tuple[OwnWork, ...]:
    """Return the own work of all ranks, by rank; ``selection`` has both ends.

    Its phase and threads do not count.
    """
    threads: defaultdict[int, list[ThreadRow]] = defaultdict(list)
    for thread in reader.main_threads():
        process = reader.processes[thread.process]
        if process.rank is not None and selection.takes_process(process):
            threads[process.rank].append(thread)
    ranks = {thread.id: rank for rank, rows in threads.items() for thread in rows}
    parts, tracks = cut(selection.from_ns or 0, selection.to_ns or 0, PARTS), GpuTracks(reader)
    totals: defaultdict[int, list[list[StackTotal]]] = defaultdict(lambda: [[] for _ in parts])
    for number, part in enumerate(parts):
        for total in reader.stack_totals(*part, ranks.keys()):
            totals[ranks[total.thread]][number].append(total)
    found = []
    for rank in sorted(threads):
        devices = {device for thread in threads[rank] for device in tracks.used_by(thread.process)}
        found.append(
            _own_work(reader, rank, threads[rank], devices, parts, totals[rank], waits, phases)
        )
    return tuple(found)


def _own_work(
    reader: RunReader,
    rank: int,
    threads: list[ThreadRow],
    devices: Collection[str],
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
    whole = parts[0][0], parts[-1][1]
    active = _steps_of(reader, SM_ACTIVE, devices, whole)
    clocks = _steps_of(reader, SM_CLOCK, devices, whole)
    processes, at_that_time = frozenset(thread.process for thread in threads), Selection(*whole)
    looks = [
        point.value
        for one in processes
        for point in points_of(reader, COLLECTIVES_BEHIND, one, at_that_time)
    ]
    used = [
        reader.steps(one, parts[0][0], parts[-1][1]) for one in cpu_series(reader, threads).values()
    ]
    return OwnWork(
        rank=rank,
        processes=processes,
        samples=sum(total.samples for part in totals for total in part),
        own=tuple(shares),
        cores=tuple(sum_aggregates(steps.over(*part) for steps in used).mean for part in parts),
        gpu=tuple(mean_of_known([steps.over(*part).mean for steps in active]) for part in parts),
        clock_hz=mean_of_known([steps.over(*whole).mean for steps in clocks]),
        behind=(sum(value > 0 for value in looks), len(looks)),
        places={place: times.total() / (whole_ns or 1) for place, times in at_frame.items()},
        frames={
            place: reader.frames[max(times, key=times.__getitem__)]
            for place, times in at_frame.items()
        },
    )


def _steps_of(
    reader: RunReader, name: str, devices: Collection[str], whole: tuple[int, int]
) -> list[StepFunction]:
    found = [reader.find_series(name, device=device) for device in sorted(devices)]
    return [reader.steps(series.id, *whole) for series in found if series]


OWN, CORES, GPU = "own", "cores", "gpu"
"""What ranks are compared by: work in stacks, CPU time, or what their GPUs compute."""
SM_ACTIVE, SM_CLOCK = "gpu_sm_active_share", "gpu_sm_clock_hz"
LEAST_SURPLUS = 0.1
"""A rank is late by at least this part of a step.

Less is no more than ranks differ by on any machine.
"""


class StragglerTest(msgspec.Struct, frozen=True):
    """By what part of a step a rank works longer than the others do in the median.

    ``low`` to ``high`` is the 95 % interval.

    ``measure`` is OWN, CORES or GPU: the last two show work which has no stacks of its own.
    ``place`` is where most of the surplus went by, None where that has no stacks, ``place_surplus``
    how much of a step that is.
    """

    rank: int
    surplus: float
    low: float
    high: float
    measure: str
    place: Place | None
    place_surplus: float


def lateness(ranks: Sequence[OwnWork], rank: int, measure: str = OWN) -> StragglerTest | None:
    """Return how late a rank is by a measure; None where too little was seen."""
    late = next(work for work in ranks if work.rank == rank)
    others = [work for work in ranks if work.rank != rank]
    differences = []  # by part to the median of the others, where all of them were seen
    shares: dict[str, Callable[[OwnWork], tuple[float | None, ...]]]
    shares = {OWN: lambda one: one.own, CORES: lambda one: one.cores, GPU: lambda one: one.gpu}
    for own, *theirs in zip(*map(shares[measure], (late, *others)), strict=True):
        known = [share for share in theirs if share is not None]
        if own is not None and known and len(known) == len(theirs):
            differences.append(own - statistics.median(known))
    if len(differences) < 4:
        return None
    surplus = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    around = error * t_quantile(1 - 0.05 / 2 / len(ranks), len(differences) - 1)
    usual = {
        place: statistics.median(work.places.get(place, 0.0) for work in others)
        for place in late.places
    }
    surpluses = {place: share - usual[place] for place, share in late.places.items()}
    place = max(surpluses, key=surpluses.__getitem__, default=None)
    if place is not None and measure != OWN and surpluses[place] < surplus / 2:
        place = None
    place_surplus = surpluses[place] if place else 0.0
    return StragglerTest(
        rank, surplus, surplus - around, min(surplus + around, 1.0), measure, place, place_surplus
    )


def find_late(ranks: Sequence[OwnWork], *, by_cpu: bool) -> tuple[StragglerTest, ...]:
    """Return the ranks that are surely late, the latest first; nothing where none is.

    ``by_cpu`` where ranks sleep while they wait: then a rank that uses more CPU time than the
    others works longer. On GPUs the one works longer whose GPU does: where the others wait, their
    GPUs run a kernel that exchanges data, which keeps few multiprocessors at work. Both count only
    where no rank is seen to work longer, as some libraries wait by spinning.
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
