"""The ranks of a run as one job: what each does, and which are late."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.ranks.efforts import Effort, take_efforts
from profd.daemon.analyze.ranks.lateness import Lateness, find_late, lateness, own_share
from profd.daemon.analyze.ranks.waits import WaitIndex, exchange
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader

FEWEST_SAMPLES = 25
"""Of each rank; fewer tell nothing."""


class Job(msgspec.Struct, frozen=True):
    """Ranks that make their steps together: ``efforts`` by rank, ``late`` those that surely are, the latest first.

    ``sleeps_in_waits`` is False where a GPU is in use: then waits may use CPU time, and it tells nothing.
    """

    efforts: tuple[Effort, ...]
    late: tuple[Lateness, ...]
    sleeps_in_waits: bool

    def effort(self, rank: int) -> Effort:
        """Return what a rank does; raises KeyError where there is none."""
        return self._by_rank[rank]

    def lateness_of_cores(self, rank: int) -> Lateness | None:
        """Return by how much CPU time a rank is above the others; None where it is not known."""
        return lateness(self.efforts, rank, of_cores=True)

    def work_of_others(self, rank: int) -> float:
        """Return the share of a step that the other ranks surely work, in the median: no step can be shorter."""
        others = [effort for effort in self.efforts if effort.rank != rank]
        return statistics.median(max(own_share(one) or 0.0, self._cores(one)) for one in others)

    def _cores(self, effort: Effort) -> float:
        """Return the CPU time that a rank works by, where it is one of work and no wait."""
        seen = [cores for cores in effort.cores if cores is not None]
        return min(statistics.fmean(seen), 1.0) if seen and self.sleeps_in_waits else 0.0

    @property
    def _by_rank(self) -> Mapping[int, Effort]:
        return {effort.rank: effort for effort in self.efforts}


def take_job(reader: RunReader, selection: Selection, phases: PhaseIndex) -> Job | None:
    """Return the job over a selection's range of time, of which both ends are given.

    None where there are fewer than two ranks, where they exchange nothing, or where too little was seen of one.
    """
    if len(_ranks(reader, selection)) < 2 or not exchange(reader):
        return None
    waits = WaitIndex(reader, phases)
    efforts = take_efforts(reader, selection, waits, phases)
    if len(efforts) < 2 or min(effort.samples for effort in efforts) < FEWEST_SAMPLES:
        return None
    return Job(efforts, find_late(efforts, cpu_tells=not waits.has_gpu), not waits.has_gpu)


def _ranks(reader: RunReader, selection: Selection) -> set[int]:
    """Return the ranks among the training processes of a selection."""
    rows = [row for row in reader.processes.values() if row.role == "main" and selection.takes_process(row)]
    return {row.rank for row in rows if row.rank is not None}
