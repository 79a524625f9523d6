"""Which run files of a folder are one job."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support import synthetic
from support.noderuns import AHEAD_NS, JOB, Job, write_three_nodes

from profd.daemon.analyze.nodes import (
    Folder,
    FoundJob,
    NodeFile,
    join,
    join_files,
    open_job,
    read_folder,
)
from profd.daemon.analyze.profile import selected_totals
from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import NoSuchRun, OutputUnwritable, UsageError
from profd.daemon.render.summary import summarize
from profd.daemon.store.merge import nodes_of
from profd.daemon.store.reader import RunReader


def node(
    *ranks: int,
    of: int | None = 4,
    job: str | None = JOB,
    at: int = 0,
    host: str = "a",
    script: str = "train.py",
) -> NodeFile:
    name = f"{host}-{at}-{'-'.join(map(str, ranks))}"
    return NodeFile(Path(name), name, host, ("python", script), at, frozenset(ranks), of, job)


def ranks_of(*files: NodeFile) -> list[list[list[int]]]:
    return [[sorted(file.ranks) for file in job.files] for job in join(files)]


def test_files_of_one_job_are_joined_and_others_stay_alone() -> None:
    assert ranks_of(node(2, 3), node(0, 1)) == [[[0, 1], [2, 3]]]
    assert [job.name for job in join([node(2, 3), node(0, 1)])] == [JOB]
    assert ranks_of(node(0, 1), node(2, 3, job="other:1", at=1)) == [[[0, 1]], [[2, 3]]]
    assert ranks_of(node(0, 1, of=2), node(0, 1, of=2, at=1)) == [[[0, 1]], [[0, 1]]]
    assert ranks_of(node(of=None, job=None), node(of=None, job=None, at=1)) == [[[]], [[]]]
    assert len(join([node(0, 1, job=None), node(2, 3, job=None)])) == 1
    assert len(join([node(0, 1, job=None), node(2, 3, job=None, script="other.py")])) == 2
    assert [job.name for job in join([node(0, job="a\x1b[2J\n")])] == ["a?[2J?"]


def test_a_job_that_ran_again_or_meets_on_the_loopback_address_is_another_one() -> None:
    jobs = join([node(0, 1), node(2, 3, at=1), node(0, 1, at=60), node(2, 3, at=61)])

    assert [[file.started_ns for file in job.files] for job in jobs] == [[0, 1], [60, 61]]
    assert [job.name for job in jobs] == [JOB, f"{JOB}#2"]
    local = "127.0.0.1:29500"

    assert len(join([node(0, job=local), node(1, job=local, host="b", at=1)])) == 2
    assert len(join([node(0, job=local), node(1, job=local, at=1)])) == 1


def test_a_folder_is_read_and_unreadable_files_are_named(tmp_path: Path) -> None:
    job = Job(steps=3)
    for rank in (1, 0):
        job.write(tmp_path / f"{rank}.profd", rank)
    (tmp_path / "broken.profd").write_bytes(b"no run")
    synthetic.write_run(tmp_path / "alone.profd", seconds=2)
    found = read_folder(tmp_path)

    assert [[file.host for file in job.files] for job in found.jobs] == [
        ["node0", "node1"],
        ["ada-desktop"],
    ]
    assert found.jobs[0].files[0].world_size == 3
    assert len(found.left_out) == 1
    assert "broken.profd" in found.left_out[0]


def test_of_several_jobs_one_is_to_be_named(tmp_path: Path) -> None:
    folder = Folder(
        tmp_path, join([node(0), node(0, job="other:1", at=1), node(0, job="other:2", at=2)]), ()
    )

    with pytest.raises(UsageError, match=r"holds 3 jobs.*--job.*other:1"):
        folder.choose(None)
    with pytest.raises(UsageError):
        folder.choose("other")
    with pytest.raises(NoSuchRun, match="it holds"):
        folder.choose("third")
    assert folder.choose("other:1").name == "other:1"
    assert folder.choose("10.").name == JOB


def test_an_empty_folder_has_no_run(tmp_path: Path) -> None:
    with pytest.raises(NoSuchRun):
        read_folder(tmp_path).choose(None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_three_nodes(tmp_path_factory.mktemp("job"))


def job_of(folder: Path) -> FoundJob:
    return read_folder(folder).choose(None)


def test_the_late_rank_has_its_node_and_nothing_is_lost_or_doubled(folder: Path) -> None:
    with open_job(job_of(folder)) as reader:
        summary = summarize(reader)
    assert [(row.rank, row.host) for row in summary.ranks] == [
        (0, "node0"),
        (1, "node1"),
        (2, "node2"),
    ]
    assert [row.rank for row in summary.ranks if row.is_late] == [1]
    (finding,) = (one for one in summary.findings if one.rule == "straggler")
    assert "rank 1 on node1 makes the others wait" in finding.title
    with open_job(job_of(folder)) as reader:
        started = [row.seen_ns for row in reader.processes.values()]
        nodes = nodes_of(reader)

    assert [node.host for node in nodes] == ["node0", "node1", "node2"]
    assert nodes[1].offset_ns == pytest.approx(AHEAD_NS, abs=5_000_000)
    assert max(started) - min(started) < 10_000_000
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


def test_a_joined_file_has_the_name_of_its_job_and_is_not_written_over(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "joined.profd"
    join_files(job_of(folder), path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT value FROM meta WHERE name = 'id'").fetchone() == (
            f"{JOB} on 3 nodes",
        )
    before = path.read_bytes()
    with pytest.raises(OutputUnwritable):
        join_files(job_of(folder), path)
    assert path.read_bytes() == before
