"""Commands on run files behind a URL: a file system in memory stands for a store that is elsewhere."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.noderuns import JOB, write_folder

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode
from profd.daemon.fleet.dataset import DataSet


class CredentialsMissing(Exception):
    """What the package of a store raises is its own, and mostly no OSError."""


class LockedStore(MemoryFileSystem):  # type: ignore[misc]
    """A store in memory that lets nobody in who has no key."""

    protocol = "locked"
    store: dict[str, object] = {}
    pseudo_dirs: list[str] = [""]
    is_open = False

    def _let_in(self) -> None:
        if not self.is_open:
            raise CredentialsMissing("there is no key\nto this store")

    def info(self, path: str, **options: object) -> Any:  # noqa: ANN401
        """Return what a place is."""
        self._let_in()
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: object) -> Any:  # noqa: ANN401
        """Return what is in a folder."""
        self._let_in()
        return super().ls(path, detail, **options)

    def _open(self, path: str, *words: object, **options: object) -> Any:  # noqa: ANN401
        if path.endswith(".parquet"):
            self._let_in()
        return super()._open(path, *words, **options)


@pytest.fixture
def locked_store(monkeypatch: pytest.MonkeyPatch) -> type[LockedStore]:
    """Give the class of what is behind ``locked://``."""
    fsspec.register_implementation("locked", LockedStore, clobber=True)
    monkeypatch.setattr(LockedStore, "is_open", False)
    return LockedStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the files of two nodes of a job."""
    return write_folder(tmp_path / "job")


@pytest.fixture
def url(folder: Path) -> str:
    """Give the URL of such a folder, with something beside the runs."""
    url = f"memory://{folder.parent.name}/job"
    files, root = fsspec.core.url_to_fs(url)
    files.makedirs(root)
    for path in folder.iterdir():
        files.put_file(str(path), f"{root}/{path.name}")
    files.pipe_file(f"{root}/notes.txt", b"no run")
    return url


def test_a_job_behind_a_url_is_summarized_as_one_run_and_nothing_is_left(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    assert run_command_line(["summary", url, "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["run"] == f"{JOB} on 2 nodes"
    assert set(tmp_path.iterdir()) == before


def test_a_single_file_behind_a_url_is_a_run(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["summary", f"{url}/1.profd", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["run"] == "run-1"


@pytest.mark.parametrize(("rest", "named"), [("", "job.html"), ("/", "job.html"), ("/0.profd", "0.html")])
def test_a_report_is_named_after_the_last_part_of_the_url(
    url: str, rest: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["report", url + rest]) == ExitCode.OK
    assert capsys.readouterr().out == f"{named}\n"
    assert (tmp_path / named).exists()


def test_exports_and_comparisons_take_jobs(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["export", url, "--format", "collapsed"]) == ExitCode.OK
    there = capsys.readouterr().out
    assert run_command_line(["export", str(folder), "--format", "collapsed"]) == ExitCode.OK
    assert there == capsys.readouterr().out
    assert there

    assert run_command_line(["diff", url, str(folder), "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert {told["base"]["run"], told["new"]["run"]} == {f"{JOB} on 2 nodes"}
    assert [change for change in told["functions"] if change["is_significant"]] == []


def test_each_node_of_a_job_is_put_into_a_data_set(url: str, tmp_path: Path) -> None:
    where = str(tmp_path / "fleet")
    assert run_command_line(["export", url, "--format", "parquet", "--to", where]) == ExitCode.OK
    assert [manifest.run for manifest in DataSet(where).manifests()] == ["run-0@node0", "run-1@node1"]


def test_what_cannot_be_fetched_is_said(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, code, why in (
        (f"{url}/none", ExitCode.UNREADABLE_RUN, "cannot read"),
        (f"{url}/2.profd", ExitCode.UNREADABLE_RUN, "cannot read"),
        ("memory://empty-of-runs", ExitCode.UNREADABLE_RUN, "cannot read"),
        ("nosuch://bucket/job", ExitCode.USAGE, "no place"),
    ):
        assert run_command_line(["summary", wrong]) == code, wrong
        assert why in capsys.readouterr().err
    files, root = fsspec.core.url_to_fs(f"{url}/empty")
    files.makedirs(root)
    assert run_command_line(["summary", f"{url}/empty"]) == ExitCode.NO_RUN
    assert "holds no run files" in capsys.readouterr().err


@pytest.mark.usefixtures("locked_store")
def test_errors_of_a_stores_own_are_one_line(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"locked://{tmp_path.name}"
    for command, code in (
        (["summary", f"{place}/run.profd"], ExitCode.UNREADABLE_RUN),
        (["fleet", place], ExitCode.UNREADABLE_RUN),
        (["export", url, "--format", "parquet", "--to", place], ExitCode.UNWRITABLE_OUTPUT),
    ):
        assert run_command_line(command) == code, command
        said = capsys.readouterr().err
        assert "there is no key" in said
        assert said.count("\n") == 1, said


def test_a_store_that_closes_while_it_is_read_is_said(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], locked_store: type[LockedStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    place = f"locked://{tmp_path.name}"
    monkeypatch.setattr(locked_store, "is_open", True)
    assert run_command_line(["export", url, "--format", "parquet", "--to", place]) == ExitCode.OK
    monkeypatch.setattr(LockedStore, "info", MemoryFileSystem.info)
    monkeypatch.setattr(LockedStore, "ls", MemoryFileSystem.ls)
    monkeypatch.setattr(locked_store, "is_open", False)
    capsys.readouterr()
    assert run_command_line(["fleet", place]) == ExitCode.UNREADABLE_RUN
    assert "cannot be read (CredentialsMissing: there is no key" in " ".join(capsys.readouterr().err.split())
