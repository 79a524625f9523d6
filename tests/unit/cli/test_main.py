"""The entry of the command line: which commands there are, and what becomes of each way to fail."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import click
import pytest

from profd.cli import main
from profd.daemon.errors import ExitCode, NoSuchProcess

DESIGNED = [
    "run",
    "attach",
    "demo",
    "view",
    "ls",
    "dump",
    "window",
    "summary",
    "report",
    "export",
    "diff",
    "stop",
    "daemon",
    "doctor",
    "fleet",
]


@dataclass
class Outcome:
    """What ``profd fail`` comes to."""

    raises: BaseException | None = None
    returns: int | None = None


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """Make ``profd fail`` a command, with the outcome that the test sets."""
    outcome = Outcome()

    def command() -> int | None:
        if outcome.raises:
            raise outcome.raises
        return outcome.returns

    module = SimpleNamespace(command=click.command()(command))
    monkeypatch.setitem(sys.modules, "profd.cli.fail", module)
    monkeypatch.setitem(main.COMMANDS, "fail", "Fail.")
    return outcome


def test_every_designed_command_is_there() -> None:
    assert sorted(main.COMMANDS) == sorted(DESIGNED)


@pytest.mark.parametrize("name", DESIGNED)
def test_command_is_where_the_list_says_and_explains_itself(name: str) -> None:
    command = main.load_command(name)
    assert isinstance(command, click.Command)
    assert command.help


def test_list_of_commands_imports_none_of_them() -> None:
    program = (
        "import sys; from profd.cli.main import run_command_line; run_command_line(['--help']);"
        "print('loaded', *(name for name in sys.modules if name.startswith('profd.')))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    *help_text, loaded = ended.stdout.splitlines()
    assert [name for name in DESIGNED if not any(line.split()[:1] == [name] for line in help_text)] == []
    assert set(loaded.split()[1:]) == {
        "profd.cli",
        "profd.cli.main",
        "profd.cli.console",
        "profd.daemon",
        "profd.daemon.errors",
    }


def test_error_is_one_line_with_its_remedy_and_exit_code(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    outcome.raises = NoSuchProcess("there is no\nprocess 7", "try another")
    assert main.run_command_line(["fail"]) == ExitCode.NO_PROCESS
    assert capsys.readouterr() == ("", "profd: there is no process 7: try another\n")


def test_what_an_error_quotes_does_not_steer_the_terminal(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    outcome.raises = NoSuchProcess("\x1b]0;owned\x07a\u202eb is no run", "try another")
    assert main.run_command_line(["fail"]) == ExitCode.NO_PROCESS
    assert capsys.readouterr().err == "profd: \\x1b]0;owned\\x07a\\u202eb is no run: try another\n"


def test_exit_code_of_a_command_is_passed_on(outcome: Outcome) -> None:
    outcome.returns = 143
    assert main.run_command_line(["fail"]) == 143


def test_command_without_exit_code_ends_with_0(outcome: Outcome) -> None:
    assert main.run_command_line(["fail"]) == 0


def test_interrupt_ends_with_130(outcome: Outcome) -> None:
    outcome.raises = KeyboardInterrupt()
    assert main.run_command_line(["fail"]) == 130


def test_mistake_of_ours_is_not_hidden(outcome: Outcome) -> None:
    outcome.raises = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        main.run_command_line(["fail"])


@pytest.mark.parametrize("words", [["nonsense"], ["attach"], ["attach", "x"], ["attach", "--rate", "0", "1"]])
def test_wrong_use_ends_with_2_in_clicks_way(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(words) == ExitCode.USAGE
    assert "Usage: profd" in capsys.readouterr().err


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["--version"]) == 0
    assert capsys.readouterr().out.startswith("profd 0.")


def test_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "profd", "ls"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(60) == ExitCode.FAILURE
    process.stderr.close()
