"""`profd ls`: every run file has its line, whatever state it is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import RUN_ID, write_run

from profd.cli import ls
from profd.cli.main import run_command_line
from profd.daemon.tree.attachable import Attachable

TRAINING = Attachable(pid=4242, python="3.11", uses_torch=True, age_s=61.0, command=("python", "train.py"))


@pytest.fixture
def runs(profd_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ls, "find_attachable", lambda: [TRAINING])
    folder = profd_home / "runs"
    folder.mkdir()
    return folder


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the runs that ``profd ls --json`` lists."""
    assert run_command_line(["ls", "--json"]) == 0
    runs: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["runs"]
    return runs


def test_no_runs_yet_says_how_to_make_one(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["ls"]) == 0
    assert "profd run" in capsys.readouterr().out


def test_runs_are_listed_with_what_is_known_the_newest_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(runs / f"{RUN_ID}.profd", seconds=4)
    (run,) = listed(capsys)
    assert (run["run"], run["file"], run["state"], run["duration_s"]) == (RUN_ID, str(path), "ended", 4.0)
    assert run["command"] == ["python", "train.py", "--epochs", "2"]
    assert run["samples"] == 4 * 100 * 4  # of two threads of the main process and one of each worker
    path.unlink()
    for day in ("19", "21", "20"):
        write_run(runs / f"202611{day}-120000-cifar-0000.profd", seconds=1)
    assert [Path(run["file"]).name[6:8] for run in listed(capsys)] == ["21", "20", "19"]


def test_unreadable_file_is_listed_as_such(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(runs / f"{RUN_ID}.profd", seconds=1)
    path.write_bytes(path.read_bytes()[:5000])
    (runs / "20261121-000000-notes-0000.profd").write_text("not a run")
    assert [run["state"] for run in listed(capsys)] == ["unreadable", "unreadable"]
    assert run_command_line(["ls"]) == 0
    told = capsys.readouterr().out
    assert "is cut short" in told
    assert "is no run file" in told


def test_live_run_marks_its_process(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs / f"{RUN_ID}.profd", seconds=1, live=True)
    assert run_command_line(["ls"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("4242")]
    assert line.split() == ["4242", "3.11", "torch", "1", "min", "01", "s", RUN_ID, "python", "train.py"]
