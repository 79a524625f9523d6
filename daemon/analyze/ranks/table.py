"""The ranks of a run side by side, a row each: what ``profd summary`` shows of them."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.findings.training import training_range
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.ranks.efforts import Effort
from profd.daemon.analyze.ranks.job import Job, take_job
from profd.daemon.analyze.ranks.lateness import lateness, own_share
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps.steps import take_steps
from profd.daemon.store.noderows import hosts_of
from profd.daemon.store.reader import RunReader


class RankPart(msgspec.Struct, frozen=True):
    """What a rank spends most more of a step on than the others do in the median: ``surplus`` is that share."""

    phase: str
    function: str
    file: str
    module_path: str
    line: int
    source: str | None
    surplus: float


class RankSummary(msgspec.Struct, frozen=True):
    """A rank of a job, from its first step to its last.

    ``own_share`` is its own work, as a share of its time, ``waiting_share`` how much less that is than for the rank
    with the most: so long it waits for that one. ``is_late`` where it surely comes last. ``local_rank`` and ``node``
    are what the launcher says. None where it is not known.
    """

    rank: int
    host: str
    pids: tuple[int, ...]
    steps_per_s: float | None
    own_share: float | None
    waiting_share: float | None
    is_late: bool
    slowest: RankPart | None
    local_rank: int | None = None
    node: int | None = None


def take_ranks(reader: RunReader, selection: Selection, phases: PhaseIndex) -> tuple[RankSummary, ...]:
    """Return the ranks of a selection's range of time; none where there are no two of them that exchange data."""
    found = training_range(reader, selection, phases)
    if found is None:
        return ()
    steps = Selection(*found, processes=selection.processes, rank=selection.rank, main_threads=True)
    job = take_job(reader, steps, phases)
    if job is None:
        return ()
    most = max((share for effort in job.efforts if (share := own_share(effort)) is not None), default=0.0)
    return tuple(_rank(reader, job, effort, most, steps, phases) for effort in job.efforts)


def _rank(
    reader: RunReader, job: Job, effort: Effort, most: float, selection: Selection, phases: PhaseIndex
) -> RankSummary:
    own, placements, hosts = own_share(effort), reader.placements(), hosts_of(reader)
    place = next((placements[process] for process in sorted(effort.processes) if process in placements), None)
    alone = msgspec.structs.replace(selection, rank=effort.rank)
    return RankSummary(
        rank=effort.rank,
        host=hosts[min(effort.processes)],
        pids=tuple(sorted(reader.processes[process].pid for process in effort.processes)),
        steps_per_s=take_steps(reader, alone, phases).per_s,
        own_share=own,
        waiting_share=None if own is None else most - own,
        is_late=any(one.rank == effort.rank for one in job.late),
        slowest=_slowest(job, effort),
        local_rank=place.local_rank if place else None,
        node=place.node if place else None,
    )


def _slowest(job: Job, effort: Effort) -> RankPart | None:
    """Return where a rank spends most more time than the others, if anywhere."""
    found = lateness(job.efforts, effort.rank)
    if found is None or found.place is None or found.place_surplus <= 0:
        return None
    frame = effort.frames[found.place]
    return RankPart(
        found.place.phase, frame.function, frame.file, frame.module_path, frame.line, frame.source, found.place_surplus
    )
