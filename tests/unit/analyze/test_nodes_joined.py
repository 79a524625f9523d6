"""The run files of a job's nodes as one run, their clocks aligned."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.noderuns import AHEAD_NS, JOB, Job, write_three_nodes

from profd.daemon.analyze.nodes import FoundJob, join_files, open_job, read_folder
from profd.daemon.analyze.profile import selected_totals
from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import OutputUnwritable
from profd.daemon.render.summary import summarize
from profd.daemon.store.merge import nodes_of
from profd.daemon.store.reader import RunReader


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_three_nodes(tmp_path_factory.mktemp("job"))


def job_of(folder: Path) -> FoundJob:
    return read_folder(folder).choose(None)


def test_the_late_rank_is_named_with_its_node(folder: Path) -> None:
    with open_job(job_of(folder)) as reader:
        summary = summarize(reader)
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
