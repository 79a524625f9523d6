"""Commands on a run refuse what is none in one line with its remedy, by their exit code, and change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import write_run

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode

COMMANDS = [("summary",), ("export", "--format", "collapsed"), ("report",), ("stop",), ("view",), ("dump",)]
of_commands = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
Captured = pytest.CaptureFixture[str]


def refused(capsys: Captured, *words: str | Path) -> tuple[int, str]:
    """Run a command, check that it says nothing but one line of what is wrong and what to do; return code and line."""
    code = run_command_line([str(word) for word in words])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("profd: ")
    assert said.err.count("\n") == 1
    what, _, remedy = said.err.removeprefix("profd: ").strip().partition(": ")
    assert what
    assert remedy
    return code, said.err


@of_commands
def test_text_file_is_no_run(command: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("no run\n" * 100)
    code, line = refused(capsys, command[0], notes, *command[1:])
    assert code == ExitCode.UNREADABLE_RUN
    assert "is no run file" in line
    assert notes.read_text() == "no run\n" * 100


@of_commands
def test_truncated_run_file(command: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    run = write_run(tmp_path / "cut.profd", seconds=2)
    rest = run.read_bytes()[:-5000]
    run.write_bytes(rest)
    code, line = refused(capsys, command[0], run, *command[1:])
    assert code == ExitCode.UNREADABLE_RUN
    assert "cut short" in line
    assert run.read_bytes() == rest
    assert list(tmp_path.iterdir()) == [run]


@pytest.mark.parametrize("command", ["summary", "report", "view", "diff"])
def test_folder_without_any_run(command: str, tmp_path: Path, capsys: Captured) -> None:
    operands = [tmp_path] * (2 if command == "diff" else 1)
    assert refused(capsys, command, *operands)[0] == ExitCode.NO_RUN


@pytest.mark.parametrize("name", ["nothing", "latest"])
def test_run_that_nobody_made(name: str, capsys: Captured) -> None:
    assert refused(capsys, "summary", name)[0] == ExitCode.NO_RUN


def test_pid_larger_than_any(capsys: Captured) -> None:
    assert refused(capsys, "attach", str(2**40))[0] == ExitCode.NO_PROCESS
