"""The ranks of a run as text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.jobruns import FORWARD, LOAD, Rank, write_job
from support.noderuns import Job, write_three_nodes

from profd.daemon.analyze.job import RankSummary
from profd.daemon.analyze.nodes import open_job, read_folder
from profd.daemon.render.report import render_report
from profd.daemon.render.sections import node_lines, rank_lines
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.merge import JoinedNode
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


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, str]:
    """Give the summary of a job on three nodes, and its report."""
    folder = write_three_nodes(tmp_path_factory.mktemp("job"))
    with open_job(read_folder(folder).choose(None)) as reader:
        return summarize(reader), render_report(reader)


def test_the_tables_show_node_clock_and_error(rendered: tuple[Summary, str]) -> None:
    summary, _ = rendered
    lines = list(node_lines(summary.nodes))

    assert lines[1].split()[:2] == ["node0", "0"]
    assert lines[2].split()[1].startswith("+1,70")
    assert "ms ±" in lines[2]
    assert "by collectives" in lines[2]
    assert list(node_lines([JoinedNode(1, "b", "r", 0, None, "the wall clock", 0)]))[1].split()[1:3] == ["not", "known"]
    heads, _, late, *_ = rank_lines(summary.ranks, 160)
    assert heads.split()[:2] == ["rank", "node"]
    assert late.split()[:3] == ["▲", "1", "node1"]


def test_the_report_has_the_ranks_and_names_rows_by_rank_and_node(rendered: tuple[Summary, str]) -> None:
    _, report = rendered
    tables = report[report.index('aria-label="Ranks"') :]
    assert 'href="#rank=1"' in tables
    assert "Photos.__getitem__" in tables
    assert "+1,70" in tables


def test_a_run_without_ranks_has_no_such_tables(tmp_path: Path) -> None:
    with RunReader(Job(steps=60).write(tmp_path / "a.profd", 0)) as reader:
        report = render_report(reader)
    assert 'aria-label="Ranks"' not in report
    assert 'aria-label="Nodes"' not in report
