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


@pytest.mark.parametrize(("name", "content", "code"), [("absent", None, 127), ("plain", "no program", 126)])
def test_command_that_cannot_be_executed(tmp_path: Path, name: str, content: str | None, code: int) -> None:
    command = tmp_path / name
    if content is not None:
        command.write_text(content)
    done = launches.run("--", str(command))
    assert done.returncode == code
    assert done.stderr.count(b"\n") == 1
    assert str(command).encode() in done.stderr
    assert not list_runs()


def test_command_that_is_not_on_the_path() -> None:
    done = launches.run("no-such-command-anywhere")
    assert (done.returncode, done.stderr.count(b"\n")) == (127, 1)


def test_script_without_an_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    script.chmod(0o755)
    done = launches.run(str(script))
    assert done.returncode == 126
    assert b"#!" in done.stderr


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
