"""Commands on a folder of run files."""

from __future__ import annotations

import contextlib
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


def test_one_of_several_jobs_must_be_named_and_left_out_files_are_listed(
    folder: Path, profd: CommandLine
) -> None:
    synthetic.write_run(folder / "alone.profd", seconds=2)
    (folder / "broken.profd").write_text("no run")
    text = profd("summary", folder, code=ExitCode.USAGE)
    for words in ("holds 2 jobs", synthetic.RUN_ID, "left out"):
        assert words in text
    for job, code in (
        (synthetic.RUN_ID, ExitCode.OK),
        ("10.0", ExitCode.OK),
        ("other", ExitCode.NO_RUN),
    ):
        profd("summary", folder, "--job", job, code=code)


def test_the_only_node_is_viewed_and_of_several_a_list_is_printed(
    folder: Path, profd: CommandLine
) -> None:
    assert "2 nodes of one job" in profd("view", folder, code=ExitCode.USAGE)
    assert [line.split()[1] for line in profd.out.splitlines()] == ["host", "node0", "node1"]
    (folder / "1.profd").unlink()
    said = profd("view", folder, code=ExitCode.USAGE)
    assert f"the dashboard needs a terminal: `profd summary {folder}`" in said


def test_a_job_of_a_run_that_is_no_folder_is_an_error(folder: Path, profd: CommandLine) -> None:
    for command in ("summary", "report", "view"):
        assert "no folder" in profd(command, folder / "0.profd", "--job", "x", code=ExitCode.USAGE)
    profd("summary", folder.parent, code=ExitCode.NO_RUN)


def test_what_stands_in_files_of_others_is_harmless(
    folder: Path, tmp_path: Path, profd: CommandLine
) -> None:
    for path in folder.iterdir():
        with sqlite3.connect(path) as connection:
            connection.execute(
                "UPDATE meta SET value = ? WHERE name = 'id'",
                (f"../../{tmp_path.name}/{path.stem}",),
            )
            connection.execute(
                "UPDATE meta SET value = ? WHERE name = 'host'", (f"\x1b[2J{path.stem}",)
            )
    there = sorted(tmp_path.rglob("*"))
    for command, code in (("summary", ExitCode.OK), ("view", ExitCode.USAGE)):
        profd(command, folder, code=code)
        assert "\x1b" not in profd.out + profd.err
    assert sorted(tmp_path.rglob("*")) == there


def test_the_latest_run_is_the_newest_that_can_be_read_and_newer_ones_are_named(
    runs: Path, profd: CommandLine
) -> None:
    synthetic.write_run(runs / "20261120-120000-old-3fa9.profd", seconds=2)
    (runs / "20261122-120000-broken-3fa9.profd").write_text("no run")
    (runs / "20261123-120000-empty-3fa9.profd").touch()
    for words in (
        ("summary",),
        ("export", "--format", "collapsed"),
        ("report", "-o", runs / "report.html"),
    ):
        said = profd(words[0], "latest", *words[1:])
        for name in ("broken", "empty"):
            assert (
                f"passed over: {runs}/2026112{2 + (name == 'empty')}-120000-{name}-3fa9.profd is "
                "no run file" in (said + profd.err)
            )
    (runs / "20261120-120000-old-3fa9.profd").unlink()
    assert "is no run file" in profd("summary", "latest", code=ExitCode.UNREADABLE_RUN)


def test_a_copy_of_a_live_run_says_that_its_last_part_may_be_elsewhere(
    runs: Path, profd: CommandLine
) -> None:
    live = synthetic.write_run(runs / "20261120-120000-live-3fa9.profd", seconds=2, live=True)
    profd("summary", live)
    assert profd.err == ""
    copy = live.with_name("copy.profd")
    copy.write_bytes(live.read_bytes())
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    profd("summary", copy)
    assert (
        "copy.profd has no log beside it: if it was copied while live, its last part is in "
        "copy.profd-wal" in profd.err
    )
