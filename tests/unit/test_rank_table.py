"""The ranks of a run side by side, in the summary and as text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic
from jobruns import FORWARD, LOAD, Rank, identity_of, write_job

from profd.daemon.analyze.ranks.table import RankSummary
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.summary import Summary, summarize
from profd.daemon.render.ranklines import rank_lines
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Placement, ProcessSeen

USUAL = Rank((LOAD, 100), (FORWARD, 100))
LATE = Rank((LOAD, 250), (FORWARD, 100))
LINES = [
    "     rank     steps  own work   waits  longer than the others at",
    "        0    2.00/s      40 %    30 %",
    "        1    2.00/s      40 %    30 %",
    "  ▲     2    2.00/s      70 %     0 %  +30 % Photos.__getitem__  augment.py:33  data load in process",
]


def summary_of(path: Path, selection: Selection = MAIN_THREADS) -> Summary:
    with RunReader(path) as reader:
        return summarize(reader, selection)


def test_each_rank_has_its_work_its_waits_and_what_takes_it_longer(tmp_path: Path) -> None:
    ranks = summary_of(write_job(tmp_path / "a.profd", USUAL, USUAL, LATE)).ranks

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
    ranks = summary_of(write_job(tmp_path / "a.profd", USUAL, USUAL, more=[seen])).ranks

    assert [(row.local_rank, row.node) for row in ranks] == [(None, None), (0, 1)]


def test_the_table_shows_who_is_late_and_who_waits(tmp_path: Path) -> None:
    summary = summary_of(write_job(tmp_path / "a.profd", USUAL, USUAL, LATE))

    assert [line.rstrip() for line in rank_lines(summary.ranks, 120)] == LINES
    text = summary_text(summary, columns=120).splitlines()
    assert text[text.index("Ranks") + 1 :][:4] == LINES


def test_of_many_ranks_those_that_wait_least_are_shown(tmp_path: Path) -> None:
    late = summary_of(write_job(tmp_path / "a.profd", USUAL, LATE)).ranks[1]
    many = [_waits(late, number, 1 - number / 100) for number in range(100)]
    lines = list(rank_lines(many, 80))

    assert len(lines) == 18
    assert lines[1].split()[1] == "84"
    assert lines[-2].split()[1] == "99"
    assert lines[-1] == "  and 84 more that wait longer"


def test_one_rank_alone_and_processes_without_one_have_no_table(tmp_path: Path) -> None:
    job = write_job(tmp_path / "a.profd", USUAL, USUAL, LATE)

    assert summary_of(job, Selection(rank=1, main_threads=True)).ranks == ()
    assert summary_of(write_job(tmp_path / "b.profd", USUAL, LATE, numbered=False)).ranks == ()
    assert summary_of(synthetic.write_run(tmp_path / "c.profd")).ranks == ()
    assert list(rank_lines((), 80)) == []


def _waits(row: RankSummary, rank: int, share: float) -> RankSummary:
    return msgspec.structs.replace(row, rank=rank, waiting_share=share)
