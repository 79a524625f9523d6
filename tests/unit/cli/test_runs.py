"""Commands on a folder of run files."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from support import synthetic
from support.noderuns import JOB, write_folder

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "job")


def test_a_job_is_summarized_as_one_run(folder: Path, capsys: Captured) -> None:
    assert run_command_line(["summary", str(folder), "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["run"] == f"{JOB} on 2 nodes"
    assert [node["run"] for node in told["nodes"]] == ["run-0", "run-1"]
    assert [row["host"] for row in told["ranks"]] == ["node0", "node1"]
    assert run_command_line(["summary", str(folder), "--rank", "1", "--json"]) == ExitCode.OK
    assert [row["rank"] for row in json.loads(capsys.readouterr().out)["processes"]] == [1]


def test_a_report_is_named_after_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    # By its name alone: a folder that holds run files is meant, and no run of this name.
    assert run_command_line(["report", "job"]) == ExitCode.OK
    assert capsys.readouterr().out == "job.html\n"
    assert "node1" in (tmp_path / "job.html").read_text()


def test_of_several_jobs_one_is_to_be_named_and_files_left_out_are_told(folder: Path, capsys: Captured) -> None:
    synthetic.write_run(folder / "alone.profd", seconds=2)
    (folder / "broken.profd").write_text("no run")
    assert run_command_line(["summary", str(folder)]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "holds 2 jobs" in told
    assert synthetic.RUN_ID in told
    assert "left out" in told
    assert run_command_line(["summary", str(folder), "--job", synthetic.RUN_ID]) == ExitCode.OK
    assert run_command_line(["summary", str(folder), "--job", "10.0"]) == ExitCode.OK
    assert run_command_line(["summary", str(folder), "--job", "other"]) == ExitCode.NO_RUN


def test_the_only_node_is_viewed_and_of_several_a_list_is_printed(folder: Path, capsys: Captured) -> None:
    assert run_command_line(["view", str(folder)]) == ExitCode.USAGE
    told = capsys.readouterr()
    assert [line.split()[1] for line in told.out.splitlines()] == ["host", "node0", "node1"]
    assert "2 nodes of one job" in told.err
    (folder / "1.profd").unlink()
    assert run_command_line(["view", str(folder)]) == ExitCode.USAGE
    assert f"the dashboard needs a terminal: `profd summary {folder}`" in capsys.readouterr().err


def test_a_job_of_a_run_that_is_no_folder_is_an_error(folder: Path, capsys: Captured) -> None:
    for command in ("summary", "report", "view"):
        assert run_command_line([command, str(folder / "0.profd"), "--job", "x"]) == ExitCode.USAGE
        assert "no folder" in capsys.readouterr().err
    assert run_command_line(["summary", str(folder.parent)]) == ExitCode.NO_RUN


def test_what_stands_in_files_of_others_is_harmless(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    for path in folder.iterdir():
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'id'", (f"../../{tmp_path.name}/{path.stem}",))
            connection.execute("UPDATE meta SET value = ? WHERE name = 'host'", (f"\x1b[2J{path.stem}",))
    there = sorted(tmp_path.rglob("*"))
    assert run_command_line(["summary", str(folder)]) == ExitCode.OK
    assert run_command_line(["view", str(folder)]) == ExitCode.USAGE
    assert "\x1b" not in "".join(capsys.readouterr())
    assert sorted(tmp_path.rglob("*")) == there
