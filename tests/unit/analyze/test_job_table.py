"""The ranks of a run side by side: work, waits, and where one takes longer than the others."""

from __future__ import annotations

from pathlib import Path

from support import synthetic
from support.jobruns import FORWARD, LOAD, Rank, identity_of, write_job

from profd.daemon.analyze.job import RankSummary, take_ranks
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Placement, ProcessSeen

USUAL = Rank((LOAD, 100), (FORWARD, 100))
LATE = Rank((LOAD, 250), (FORWARD, 100))


def ranks_of(path: Path, selection: Selection = MAIN_THREADS) -> tuple[RankSummary, ...]:
    with RunReader(path) as reader:
        return take_ranks(reader, selection, PhaseIndex(reader))


def test_each_rank_has_the_place_that_its_launcher_gave_it(tmp_path: Path) -> None:
    place = Placement(1, 0, 1, 2)
    seen = ProcessSeen(
        identity_of(1),
        None,
        synthetic.COMMAND,
        "main",
        1,
        None,
        "3.11.7",
        synthetic.STARTED_NS,
        place,
    )
    ranks = ranks_of(write_job(tmp_path / "a.profd", USUAL, USUAL, more=[seen]))

    assert [(row.local_rank, row.node) for row in ranks] == [(None, None), (0, 1)]
    assert [row.pids for row in ranks] == [(identity_of(rank).pid,) for rank in range(2)]


def test_one_rank_alone_and_processes_without_one_have_no_table(tmp_path: Path) -> None:
    job = write_job(tmp_path / "a.profd", USUAL, USUAL, LATE)

    assert ranks_of(job, Selection(rank=1, main_threads=True)) == ()
    assert ranks_of(write_job(tmp_path / "b.profd", USUAL, LATE, numbered=False)) == ()
    assert ranks_of(synthetic.write_run(tmp_path / "c.profd")) == ()
