"""The run files of a job's nodes as one run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import rankrun
from clockshift import shift_clock
from noderuns import JOB, Job

from profd.daemon.analyze.nodes.jobs import FoundJob, read_folder
from profd.daemon.analyze.nodes.joined import join_files, open_job
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.summary import Summary, summarize
from profd.daemon.analyze.totals import selected_totals
from profd.daemon.errors import OutputUnwritable
from profd.daemon.render.nodelines import node_lines
from profd.daemon.render.ranklines import rank_lines
from profd.daemon.render.ranktable import rank_tables
from profd.daemon.render.report import render_report
from profd.daemon.store.joining import join_runs
from profd.daemon.store.noderows import JoinedNode, hosts_of, nodes_of
from profd.daemon.store.reader import RunReader

AHEAD_NS = 1_700_000_003


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the files of three nodes; the clock of the second is ahead, and its rank is late."""
    folder, job = tmp_path_factory.mktemp("job"), Job()
    job.write(folder / "a.profd", 2)
    job.write(folder / "b.profd", 1, own_share=0.9, ahead_ns=AHEAD_NS)
    job.write(folder / "c.profd", 0)
    return folder


@pytest.fixture(scope="module")
def summary(folder: Path) -> Summary:
    with open_job(job_of(folder)) as reader:
        return summarize(reader)


def job_of(folder: Path) -> FoundJob:
    return read_folder(folder).choose(None)


def test_the_late_rank_is_named_with_its_node(summary: Summary) -> None:
    assert [(row.rank, row.host) for row in summary.ranks] == [(0, "node0"), (1, "node1"), (2, "node2")]
    assert [row.rank for row in summary.ranks if row.is_late] == [1]
    (finding,) = (one for one in summary.findings if one.rule == "straggler")
    assert "rank 1 on node1 makes the others wait" in finding.title


def test_every_time_is_in_the_clock_of_the_first_node(folder: Path) -> None:
    with open_job(job_of(folder)) as reader:
        started = [row.seen_ns for row in reader.processes.values()]
        nodes = nodes_of(reader)

    assert [node.host for node in nodes] == ["node0", "node1", "node2"]
    assert nodes[1].offset_ns == pytest.approx(AHEAD_NS, abs=5_000_000)
    assert max(started) - min(started) < 10_000_000


def test_nothing_that_was_seen_is_lost_or_told_twice(folder: Path) -> None:
    everything = Selection()
    seen: list[int] = []
    for path in folder.glob("*.profd"):
        with RunReader(path) as reader:
            seen.append(sum(total.duration_ns for total in selected_totals(reader, everything)))
            count = len(list(reader.intervals()))
            recordings = len(reader.recordings())
    with open_job(job_of(folder)) as reader:
        assert sum(total.duration_ns for total in selected_totals(reader, everything)) == sum(seen)
        assert len(list(reader.intervals())) == pytest.approx(3 * count, rel=0.1)
        assert len(reader.recordings()) == 3 * recordings
        assert reader.info.state == "ended"


def test_processes_series_windows_and_devices_of_nodes_are_told_apart(tmp_path: Path) -> None:
    # Two nodes whose processes have the same PIDs and start times, and whose GPUs have the same names.
    paths = [rankrun.write_run(tmp_path / f"{number}.profd") for number in range(2)]
    ahead_ns = 200 * AHEAD_NS
    shift_clock(paths[1], ahead_ns)
    nodes = [JoinedNode(0, "a", "run-a", 0, 0, "", 0), JoinedNode(1, "b", "run-b", ahead_ns, 1, "", 9)]
    with RunReader(paths[0]) as one, RunReader(paths[1]) as other:
        join_runs([one, other], nodes, "both", tmp_path / "both.profd")
        alone = {(row.name, row.device) for row in one.series.values()}
        alone_rows, windows = len(one.processes), one.windows()
        points = {row.name: len(one.points(row.id)) for row in one.series.values() if row.process is not None}
        operators = one.operators(windows[0].id)
        intervals = sorted((row.start_ns, row.duration_ns) for row in one.intervals())
    with RunReader(tmp_path / "both.profd") as both:
        assert len(both.processes) == 2 * alone_rows
        assert sorted(hosts_of(both).values()) == ["a"] * alone_rows + ["b"] * alone_rows
        assert {row.device.rpartition(" on ")[2] for row in both.series.values() if row.device} <= {"a", "b"}
        assert len(both.series) == 2 * len(one.series)
        assert {name for name, _ in alone} == {row.name for row in both.series.values()}
        for row in both.series.values():
            if row.process is not None:
                assert len(both.points(row.id)) == points[row.name]
        assert sorted((row.start_ns, row.duration_ns) for row in both.intervals()) == sorted(2 * intervals)
        assert [row.start_ns for row in both.windows()] == [windows[0].start_ns] * 2
        assert both.operators(both.windows()[1].id) == operators


def test_the_tables_show_node_clock_and_error(summary: Summary) -> None:
    lines = list(node_lines(summary.nodes))

    assert lines[1].split()[:2] == ["node0", "0"]
    assert lines[2].split()[1].startswith("+1,70")
    assert "ms ±" in lines[2]
    assert "by collectives" in lines[2]
    assert list(node_lines([JoinedNode(1, "b", "r", 0, None, "the wall clock", 0)]))[1].split()[1:3] == ["not", "known"]
    heads, _, late, *_ = rank_lines(summary.ranks, 160)
    assert heads.split()[:2] == ["rank", "node"]
    assert late.split()[:3] == ["▲", "1", "node1"]


def test_the_report_has_the_ranks_and_names_rows_by_rank_and_node(folder: Path, summary: Summary) -> None:
    table = rank_tables(summary)

    assert 'href="#rank=1"' in table
    assert "Photos.__getitem__" in table
    assert "+1,70" in table
    with open_job(job_of(folder)) as reader:
        assert table in render_report(reader)


def test_a_run_without_ranks_has_no_such_tables(tmp_path: Path) -> None:
    with RunReader(Job(steps=60).write(tmp_path / "a.profd", 0)) as reader:
        assert rank_tables(summarize(reader)).strip() == ""


def test_one_file_alone_is_read_as_it_is(tmp_path: Path) -> None:
    path = Job(steps=3).write(tmp_path / "a.profd", 0)

    with open_job(job_of(tmp_path)) as reader:
        assert reader.path == path
        assert nodes_of(reader) == ()


def test_a_file_that_is_there_is_not_written_over(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "joined.profd").write_text("mine")

    with pytest.raises(OutputUnwritable):
        join_files(job_of(folder), tmp_path / "joined.profd")
    assert (tmp_path / "joined.profd").read_text() == "mine"


def test_the_job_has_the_name_that_its_launcher_gave_it(folder: Path, tmp_path: Path) -> None:
    join_files(job_of(folder), tmp_path / "joined.profd")

    with sqlite3.connect(tmp_path / "joined.profd") as connection:
        assert connection.execute("SELECT value FROM meta WHERE name = 'id'").fetchone() == (f"{JOB} on 3 nodes",)
