"""The ranks of a run side by side: work, waits, and where one takes longer than the others."""

from __future__ import annotations

from pathlib import Path

import pytest
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


def test_each_rank_has_its_work_its_waits_and_what_takes_it_longer(tmp_path: Path) -> None:
    ranks = ranks_of(write_job(tmp_path / "a.profd", USUAL, USUAL, LATE))

    assert [row.rank for row in ranks] == [0, 1, 2]
    assert [row.pids for row in ranks] == [(identity_of(number).pid,) for number in range(3)]
    assert [row.steps_per_s for row in ranks] == pytest.approx([2.0] * 3)
    assert [row.own_share for row in ranks] == pytest.approx([0.4, 0.4, 0.7], abs=0.01)
    assert [row.waiting_share for row in ranks] == pytest.approx([0.3, 0.3, 0.0], abs=0.01)
    assert [row.is_late for row in ranks] == [False, False, True]
    assert {row.host for row in ranks} == {"ada-desktop"}
    slowest = ranks[2].slowest
    assert slowest is not None
    assert (slowest.phase, slowest.function, slowest.line) == ("data load in process", "Photos.__getitem__", 33)
    assert slowest.surplus == pytest.approx(0.3, abs=0.01)


def test_each_rank_has_the_place_that_its_launcher_gave_it(tmp_path: Path) -> None:
    place = Placement(1, 0, 1, 2)
    seen = ProcessSeen(identity_of(1), None, synthetic.COMMAND, "main", 1, None, "3.11.7", synthetic.STARTED_NS, place)
    ranks = ranks_of(write_job(tmp_path / "a.profd", USUAL, USUAL, more=[seen]))

    assert [(row.local_rank, row.node) for row in ranks] == [(None, None), (0, 1)]


def test_one_rank_alone_and_processes_without_one_have_no_table(tmp_path: Path) -> None:
    job = write_job(tmp_path / "a.profd", USUAL, USUAL, LATE)

    assert ranks_of(job, Selection(rank=1, main_threads=True)) == ()
    assert ranks_of(write_job(tmp_path / "b.profd", USUAL, LATE, numbered=False)) == ()
    assert ranks_of(synthetic.write_run(tmp_path / "c.profd")) == ()
