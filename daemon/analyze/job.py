"""The ranks of a run as one job, a row each."""

from __future__ import annotations

import statistics

import msgspec

from profd.daemon.analyze.collectives import WaitIndex, exchange
from profd.daemon.analyze.phases import PhaseIndex, PhasePlace, training_range
from profd.daemon.analyze.ranks import OwnWork, StragglerTest, find_late, lateness, take_own_work
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import mean_of_known
from profd.daemon.analyze.steps import take_steps
from profd.daemon.store.merge import hosts_of
from profd.daemon.store.reader import RunReader


class Job(msgspec.Struct, frozen=True):
    """Ranks that make their steps together.

    ``ranks`` are in order. ``late`` has the ranks that surely are late, the latest first.
    ``sleeps_in_waits`` is False if a GPU is in use: then waits may use CPU time, which proves
    nothing.
    """

    ranks: tuple[OwnWork, ...]
    late: tuple[StragglerTest, ...]
    sleeps_in_waits: bool

    def work(self, rank: int) -> OwnWork:
        return next(work for work in self.ranks if work.rank == rank)

    def work_of_others(self, rank: int) -> float:
        """Return the median share of a step that others surely work: no step can be shorter."""
        others = [one for one in self.ranks if one.rank != rank]
        cores = [mean_of_known(one.cores) if self.sleeps_in_waits else None for one in others]
        surely = zip((one.own_share for one in others), cores, strict=True)
        return statistics.median(max(own or 0.0, min(used or 0.0, 1.0)) for own, used in surely)


def take_job(reader: RunReader, selection: Selection, phases: PhaseIndex) -> Job | None:
    """Return the job over a selection's range of time, which has both ends.

    None if there are fewer than two ranks, if they exchange nothing, or if one has too few samples.
    """
    if len({row.rank for row in selection.trainers(reader)} - {None}) < 2 or not exchange(reader):
        return None
    waits = WaitIndex(reader, phases)
    ranks = take_own_work(reader, selection, waits, phases)
    if len(ranks) < 2 or min(work.samples for work in ranks) < 25:  # fewer prove nothing
        return None
    return Job(ranks, find_late(ranks, by_cpu=not waits.has_gpu), not waits.has_gpu)


class RankPart(PhasePlace, frozen=True):
    """The place where a rank most exceeds the others, by ``surplus`` above their median share."""

    surplus: float


class RankSummary(msgspec.Struct, frozen=True):
    """A rank of a job, from its first step to its last.

    ``own_share`` is its own work, as a share of its time, ``waiting_share`` how much less that is
    than for the rank with the most, for which it waits so long. ``is_late`` says that it surely
    comes last. ``local_rank`` and ``node`` are what the launcher says. None means unknown.
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


def take_ranks(
    reader: RunReader, selection: Selection, phases: PhaseIndex
) -> tuple[RankSummary, ...]:
    """Return the ranks in a selection's range of time; None without two that exchange data."""
    found = training_range(reader, selection, phases)
    if found is None:
        return ()
    steps = Selection(*found, processes=selection.processes, rank=selection.rank, main_threads=True)
    job = take_job(reader, steps, phases)
    if job is None:
        return ()
    most = max((share for work in job.ranks if (share := work.own_share) is not None), default=0.0)
    placements, hosts = reader.placements(), hosts_of(reader)
    rows = []
    for work in job.ranks:
        own, slowest = work.own_share, None
        late = lateness(job.ranks, work.rank)
        if late is not None and late.place is not None and late.place_surplus > 0:
            slowest = RankPart(late.place.phase, *work.frames[late.place].place, late.place_surplus)
        place = next(
            (placements[process] for process in sorted(work.processes) if process in placements),
            None,
        )
        alone = msgspec.structs.replace(steps, rank=work.rank)
        row = RankSummary(
            rank=work.rank,
            host=hosts[min(work.processes)],
            pids=tuple(sorted(reader.processes[process].pid for process in work.processes)),
            steps_per_s=take_steps(reader, alone, phases).per_s,
            own_share=own,
            waiting_share=None if own is None else most - own,
            is_late=any(one.rank == work.rank for one in job.late),
            slowest=slowest,
            local_rank=place.local_rank if place else None,
            node=place.node if place else None,
        )
        rows.append(row)
    return tuple(rows)
