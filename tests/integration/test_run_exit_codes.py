"""The exit code of `profd run` is the script's, and a launch that fails leaves nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import launches

from profd.daemon.paths import list_runs


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("raise ValueError('no')", 1),
    ],
)
def test_exit_code_is_the_scripts(code: str, expected: int) -> None:
    assert launches.run("--", *launches.PYTHON, code).returncode == expected


def test_options_of_the_command_are_its_own() -> None:
    done = launches.run(*launches.PYTHON, "import sys; print(sys.argv[1:])", "--name", "x", "--", "-o")
    assert done.stdout == b"['--name', 'x', '--', '-o']\n"


@pytest.mark.parametrize(
    ("command", "mode", "code", "said"),
    [
        ("./absent", None, 127, "./absent"),
        ("./plain", 0o644, 126, "./plain"),
        ("./train.py", 0o755, 126, "#!"),  # it names no interpreter
        ("no-such-command-on-the-path", None, 127, "no-such-command-on-the-path"),
    ],
)
def test_command_that_cannot_be_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, mode: int | None, code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if mode is not None:
        Path(command).write_text("print('hello')\n")
        Path(command).chmod(mode)
    done = launches.run("--", command)
    assert (done.returncode, done.stderr.count(b"\n")) == (code, 1)
    assert said.encode() in done.stderr
    assert not list_runs()


@pytest.mark.parametrize("output", ["missing/run.profd", "there.profd"])
def test_unwritable_output_is_told_before_the_script_starts(tmp_path: Path, output: str) -> None:
    (tmp_path / "there.profd").touch()
    mark = tmp_path / "mark"
    done = launches.run("-o", str(tmp_path / output), sys.executable, "-c", f"open({str(mark)!r}, 'w')")
    assert done.returncode == 73
    assert not mark.exists()


def test_usage_error_is_profds_own() -> None:
    assert launches.run("--no-such-option", "true").returncode == 2
    assert launches.run().returncode == 2
