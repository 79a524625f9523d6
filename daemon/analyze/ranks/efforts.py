"""How much of each rank's time is work of its own, and what it consists of, part by part of a range of time.

Ranks of one job make their steps together, so shares of their time are shares of the same step. Compares nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from profd.daemon.analyze.phases import PhaseIndex, own_frame
from profd.daemon.analyze.ranks.waits import WaitIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, StackTotal, ThreadRow
from profd.daemon.store.stepfunction import added_up

PARTS = 24
"""How many parts a range of time is cut into: what differs between them by chance tells how sure a difference is."""

_CPU = "cpu_cores"


class Place(msgspec.Struct, frozen=True):
    """A function in a phase: the innermost of the user's in the stack, else the innermost of all."""

    phase: str
    function: str
    file: str


class Effort(msgspec.Struct, frozen=True):
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


def take_efforts(reader: RunReader, selection: Selection, waits: WaitIndex, phases: PhaseIndex) -> tuple[Effort, ...]:
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
) -> Effort:
    """Return the effort of one rank from what was seen of it in each part."""
    spent_ns: Counter[int] = Counter()
    for total in (total for part in totals for total in part):
        spent_ns[total.stack] += total.duration_ns
    whole_ns = spent_ns.total() or 1
    places, frames = _places(
        reader, {stack: spent_ns[stack] for stack in spent_ns if not waits.may_wait(stack)}, phases
    )
    return Effort(
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
    return tuple(added_up(steps.over(*part) for steps in used).mean for part in parts)
