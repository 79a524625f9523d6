"""Which run files of a folder are one job."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import synthetic
from support.noderuns import JOB, Job

from profd.daemon.analyze.nodes import Folder, NodeFile, join, read_folder
from profd.daemon.errors import NoSuchRun, UsageError


def node(
    *ranks: int, of: int | None = 4, job: str | None = JOB, at: int = 0, host: str = "a", script: str = "train.py"
) -> NodeFile:
    name = f"{host}-{at}-{'-'.join(map(str, ranks))}"
    return NodeFile(Path(name), name, host, ("python", script), at, frozenset(ranks), of, job)


def ranks_of(*files: NodeFile) -> list[list[list[int]]]:
    return [[sorted(file.ranks) for file in job.files] for job in join(files)]


def test_files_of_one_job_are_joined_in_the_order_of_their_ranks() -> None:
    assert ranks_of(node(2, 3), node(0, 1)) == [[[0, 1], [2, 3]]]
    assert [job.name for job in join([node(2, 3), node(0, 1)])] == [JOB]


def test_other_jobs_and_those_whose_ranks_are_all_in_one_file_stay_alone() -> None:
    assert ranks_of(node(0, 1), node(2, 3, job="other:1", at=1)) == [[[0, 1]], [[2, 3]]]
    assert ranks_of(node(0, 1, of=2), node(0, 1, of=2, at=1)) == [[[0, 1]], [[0, 1]]]
    assert ranks_of(node(of=None, job=None), node(of=None, job=None, at=1)) == [[[]], [[]]]


def test_a_name_can_be_printed() -> None:
    assert [job.name for job in join([node(0, job="a\x1b[2J\n")])] == ["a?[2J?"]


def test_a_job_that_ran_again_is_another_one() -> None:
    jobs = join([node(0, 1), node(2, 3, at=1), node(0, 1, at=60), node(2, 3, at=61)])

    assert [[file.started_ns for file in job.files] for job in jobs] == [[0, 1], [60, 61]]
    assert [job.name for job in jobs] == [JOB, f"{JOB}#2"]


def test_who_meets_on_the_loopback_address_is_on_one_host() -> None:
    local = "127.0.0.1:29500"

    assert len(join([node(0, job=local), node(1, job=local, host="b", at=1)])) == 2
    assert len(join([node(0, job=local), node(1, job=local, at=1)])) == 1


def test_without_a_name_the_same_script_with_other_ranks_is_the_job() -> None:
    assert len(join([node(0, 1, job=None), node(2, 3, job=None)])) == 1
    assert len(join([node(0, 1, job=None), node(2, 3, job=None, script="other.py")])) == 2


def test_a_folder_is_read_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    job = Job(steps=3)
    for rank in (1, 0):
        job.write(tmp_path / f"{rank}.profd", rank)
    (tmp_path / "broken.profd").write_bytes(b"no run")
    synthetic.write_run(tmp_path / "alone.profd", seconds=2)
    found = read_folder(tmp_path)

    assert [[file.host for file in job.files] for job in found.jobs] == [["node0", "node1"], ["ada-desktop"]]
    assert found.jobs[0].files[0].world_size == 3
    assert len(found.left_out) == 1
    assert "broken.profd" in found.left_out[0]


def test_of_several_jobs_one_is_to_be_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path, join([node(0), node(0, job="other:1", at=1), node(0, job="other:2", at=2)]), ())

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
