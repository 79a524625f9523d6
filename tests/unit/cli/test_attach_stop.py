"""`profd stop` on runs whose session is gone, cannot be reached, or ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.synthetic import RUN_ID, write_run

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode


@pytest.fixture
def runs(profd_home: Path) -> Path:
    folder = profd_home / "runs"
    folder.mkdir()
    return folder


def test_a_run_that_has_ended_or_is_unknown_is_said(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs / f"{RUN_ID}.profd", seconds=1)
    assert run_command_line(["stop", "latest"]) == ExitCode.OK
    assert capsys.readouterr().err == f"profd: {RUN_ID} has ended already\n"
    assert run_command_line(["stop", "nothing"]) == ExitCode.NO_RUN
    assert "profd ls" in capsys.readouterr().err


def test_a_process_that_is_no_session_is_left_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run file may name anything as its recorder: here it is the process of the test."""
    write_run(runs / f"{RUN_ID}.profd", seconds=1, live=True)
    assert run_command_line(["stop", RUN_ID]) == ExitCode.SESSION
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"process {os.getpid()} is no session of profd's" in said
