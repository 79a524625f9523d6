"""The tables of ranks and nodes, in the report and as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.noderuns import Job, write_three_nodes

from profd.daemon.analyze.nodes import open_job, read_folder
from profd.daemon.render.ranks import node_lines, rank_lines, rank_tables
from profd.daemon.render.report import render_report
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.store.merge import JoinedNode
from profd.daemon.store.reader import RunReader


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
    summary, report = rendered
    table = rank_tables(summary)
    assert 'href="#rank=1"' in table
    assert "Photos.__getitem__" in table
    assert "+1,70" in table
    assert table in report


def test_a_run_without_ranks_has_no_such_tables(tmp_path: Path) -> None:
    with RunReader(Job(steps=60).write(tmp_path / "a.profd", 0)) as reader:
        assert rank_tables(summarize(reader)).strip() == ""
