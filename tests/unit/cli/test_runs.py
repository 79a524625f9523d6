"""Commands on a folder of run files."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from support import synthetic
from support.commandline import CommandLine
from support.noderuns import JOB

from profd.daemon.errors import ExitCode


def test_a_job_is_summarized_as_one_run(folder: Path, profd: CommandLine) -> None:
    summary = json.loads(profd("summary", folder, "--json"))
    assert summary["run"] == f"{JOB} on 2 nodes"
    assert [node["run"] for node in summary["nodes"]] == ["run-0", "run-1"]
    assert [row["host"] for row in summary["ranks"]] == ["node0", "node1"]
    summary = json.loads(profd("summary", folder, "--rank", 1, "--json"))
    assert [row["rank"] for row in summary["processes"]] == [1]


def test_a_report_is_named_after_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profd: CommandLine
) -> None:
    monkeypatch.chdir(tmp_path)
    # By its name alone: a folder that holds run files is meant, and no run of this name.
    assert profd("report", folder.name) == "job.html\n"
    assert "node1" in (tmp_path / "job.html").read_text()


def test_one_of_several_jobs_must_be_named_and_left_out_files_are_listed(folder: Path, profd: CommandLine) -> None:
    synthetic.write_run(folder / "alone.profd", seconds=2)
    (folder / "broken.profd").write_text("no run")
    text = profd("summary", folder, code=ExitCode.USAGE)
    for words in ("holds 2 jobs", synthetic.RUN_ID, "left out"):
        assert words in text
    for job, code in ((synthetic.RUN_ID, ExitCode.OK), ("10.0", ExitCode.OK), ("other", ExitCode.NO_RUN)):
        profd("summary", folder, "--job", job, code=code)


def test_the_only_node_is_viewed_and_of_several_a_list_is_printed(folder: Path, profd: CommandLine) -> None:
    assert "2 nodes of one job" in profd("view", folder, code=ExitCode.USAGE)
    assert [line.split()[1] for line in profd.out.splitlines()] == ["host", "node0", "node1"]
    (folder / "1.profd").unlink()
    said = profd("view", folder, code=ExitCode.USAGE)
    assert f"the dashboard needs a terminal: `profd summary {folder}`" in said


def test_a_job_of_a_run_that_is_no_folder_is_an_error(folder: Path, profd: CommandLine) -> None:
    for command in ("summary", "report", "view"):
        assert "no folder" in profd(command, folder / "0.profd", "--job", "x", code=ExitCode.USAGE)
    profd("summary", folder.parent, code=ExitCode.NO_RUN)


def test_what_stands_in_files_of_others_is_harmless(folder: Path, tmp_path: Path, profd: CommandLine) -> None:
    for path in folder.iterdir():
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'id'", (f"../../{tmp_path.name}/{path.stem}",))
            connection.execute("UPDATE meta SET value = ? WHERE name = 'host'", (f"\x1b[2J{path.stem}",))
    there = sorted(tmp_path.rglob("*"))
    for command, code in (("summary", ExitCode.OK), ("view", ExitCode.USAGE)):
        profd(command, folder, code=code)
        assert "\x1b" not in profd.out + profd.err
    assert sorted(tmp_path.rglob("*")) == there
