"""The ranks of a run as text."""

from __future__ import annotations

from pathlib import Path

import msgspec
from support.jobruns import FORWARD, LOAD, Rank, write_job

from profd.daemon.analyze.job import RankSummary
from profd.daemon.render.ranks import rank_lines
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader

USUAL = Rank((LOAD, 100), (FORWARD, 100))
LATE = Rank((LOAD, 250), (FORWARD, 100))
LINES = [
    "     rank     steps  own work   waits  longer than the others at",
    "        0    2.00/s      40 %    30 %",
    "        1    2.00/s      40 %    30 %",
    "  ▲     2    2.00/s      70 %     0 %  +30 % Photos.__getitem__  augment.py:33  data load in process",
]


def summary_of(path: Path) -> Summary:
    with RunReader(path) as reader:
        return summarize(reader)


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


def test_no_ranks_are_no_table() -> None:
    assert list(rank_lines((), 80)) == []


def _waits(row: RankSummary, rank: int, share: float) -> RankSummary:
    return msgspec.structs.replace(row, rank=rank, waiting_share=share)
