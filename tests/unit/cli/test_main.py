"""The entry of the command line: which commands there are, and what becomes of each way to fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.commandline import CommandLine
from support.folders import DOCS
from support.noderuns import JOB
from support.present import there
from support.synthetic import write_run

from profd.cli import main
from profd.daemon.errors import ExitCode, NoSuchProcess
from profd.daemon.fleet.dataset import DataSet


@dataclass
class Outcome:
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


def test_every_designed_command_is_where_the_list_says_and_is_documented() -> None:
    assert re.findall(r"^\| `profd (\w+)", PAGE, re.MULTILINE) == list(main.COMMANDS)
    codes = {
        (int(code), name) for code, name in re.findall(r"^\| (\d+) \| (\w+) \|", PAGE, re.MULTILINE)
    }
    assert codes == {(code.value, code.name) for code in ExitCode}
    for name in main.COMMANDS:
        command = main.load_command(name)
        assert isinstance(command, click.Command)
        assert command.help
        assert command.short_help == main.COMMANDS[name]
        options = [
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        ]
        if name not in ("view", "window", "daemon"):  # which have pages of their own
            assert [option for option in options if option not in PAGE] == [], name


def test_list_of_commands_imports_none_of_them_and_help_of_one_not_what_it_works_with() -> None:
    program = (
        "import sys; from profd.cli.main import run_command_line; run_command_line(['--help']);"
        "print('loaded', *(name for name in sys.modules if name.startswith('profd.')));"
        "run_command_line(['fleet', '--help']);"
        "print(*{'duckdb', 'pyarrow', 'distributed', 'fsspec', 'jinja2'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    help_text, _, rest = ended.stdout.partition("loaded ")
    loaded, *_, beside = rest.split("\n")[:-1]
    assert beside == ""
    assert [
        name
        for name in main.COMMANDS
        if not any(line.split()[:1] == [name] for line in help_text.splitlines())
    ] == []
    assert set(loaded.split()) == {
        f"profd.{one}"
        for one in (
            "cli",
            "cli.main",
            "cli.console",
            "daemon",
            "daemon.errors",
            "daemon.standardstreams",
        )
    }


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("there is no\nprocess 7", "there is no process 7"),
        ("\x1b]0;owned\x07a\u202eb is no run", "\\x1b]0;owned\\x07a\\u202eb is no run"),
    ],
    ids=["on several lines", "with what steers a terminal"],
)
def test_error_is_one_line_with_its_remedy_and_exit_code(
    outcome: Outcome, profd: CommandLine, what: str, said: str
) -> None:
    outcome.raises = NoSuchProcess(what, "try another")
    assert profd("fail", code=ExitCode.NO_PROCESS) == f"profd: {said}: try another\n"
    assert profd.out == ""


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_an_end_of_memory_or_threads_is_one_line(
    outcome: Outcome, profd: CommandLine, error: Exception
) -> None:
    outcome.raises = error
    said = profd("fail", code=ExitCode.FAILURE)
    assert said.startswith("profd: the system gives profd no more memory or threads")
    assert said.count("\n") == 1


def test_exit_code_of_a_command_is_passed_on_and_a_mistake_of_ours_not_hidden(
    outcome: Outcome,
) -> None:
    assert main.run_command_line(["fail"]) == 0
    outcome.returns = 143
    assert main.run_command_line(["fail"]) == 143
    outcome.raises = KeyboardInterrupt()
    assert main.run_command_line(["fail"]) == 130
    for mistake in (ZeroDivisionError(), RuntimeError("an event loop is closed")):
        outcome.raises = mistake
        with pytest.raises(type(mistake)):
            main.run_command_line(["fail"])


def test_wrong_use_ends_with_2_in_clicks_way(profd: CommandLine) -> None:
    for words in ("attach x", "attach --rate 0 1"):
        assert "Usage: profd" in profd(*words.split(), code=ExitCode.USAGE)
    assert profd("--version").startswith("profd 0.")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("sumary latest", "`profd summary`"),
        ("repotr", "`profd report`"),
        ("4242", "`profd attach 4242`"),
        ("train.py --epochs 3", "`profd run -- python train.py --epochs 3`"),
        ("elsewhere.py", "`profd run -- python elsewhere.py`"),
        ("job.sh a b", "`profd run -- ./job.sh a b`"),
        ("env python train.py", "`profd run -- env python train.py`"),
        ("qqqq", "`profd --help` lists the commands"),
        ("summary --jsn", "`--json`"),
        ("run --bugdet 3 -- true", "`--budget`"),
        ("summary --qqqq", "`profd summary --help`"),
    ],
)
def test_a_mistyped_word_gets_the_right_one_in_one_line(
    words: str,
    meant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    profd: CommandLine,
) -> None:
    for name in ("train.py", "job.sh"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    said = profd(*words.split(), code=ExitCode.USAGE)
    assert said.count("\n") == 1
    assert said.endswith(f": {meant}\n")


def test_reader_that_goes_away_is_no_error() -> None:
    words = [sys.executable, "-m", "profd", "ls"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        there(process.stdout).close()
        assert there(process.stderr).read() == ""
    assert process.returncode == ExitCode.FAILURE


PAGE = (DOCS / "commands.md").read_text()


class CredentialsMissing(Exception):
    """What the package of a store raises is its own, and mostly no OSError."""


def refuse(*_: object, **__: object) -> Any:  # noqa: ANN401
    raise CredentialsMissing("there is no key\nto this store")


def test_a_job_behind_a_url_is_read_as_one_run_and_nothing_is_left(
    url: str, folder: Path, profd: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    assert json.loads(profd("summary", url, "--json"))["run"] == f"{JOB} on 2 nodes"
    stacks = profd("export", url, "--format", "collapsed")
    assert stacks == profd("export", folder, "--format", "collapsed") != ""
    diff = json.loads(profd("diff", url, folder, "--json"))
    assert {diff["base"]["run"], diff["new"]["run"]} == {f"{JOB} on 2 nodes"}
    assert [change for change in diff["functions"] if change["is_significant"]] == []
    assert set(tmp_path.iterdir()) == before
    profd("export", url, "--format", "parquet", "--to", tmp_path / "fleet")
    assert [one.run for one in DataSet(str(tmp_path / "fleet")).manifests()] == [
        "run-0@node0",
        "run-1@node1",
    ]


def test_what_cannot_be_fetched_is_said(url: str, profd: CommandLine) -> None:
    for wrong in (f"{url}/none", f"{url}/2.profd", "memory://empty-of-runs"):
        assert "cannot read" in profd("summary", wrong, code=ExitCode.UNREADABLE_RUN)
    assert "no place" in profd("summary", "nosuch://bucket/job", code=ExitCode.USAGE)
    files, root = fsspec.core.url_to_fs(f"{url}/empty")
    files.makedirs(root)
    assert "holds no run files" in profd("summary", f"{url}/empty", code=ExitCode.NO_RUN)


def test_errors_of_a_stores_own_are_one_line(
    folder: Path, tmp_path: Path, profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"memory://{tmp_path.name}/locked"
    export = ("export", folder, "--format", "parquet", "--to", place)
    with monkeypatch.context() as locked:
        for name in ("info", "ls", "_open"):
            locked.setattr(MemoryFileSystem, name, refuse)
        for command, code in (
            (("summary", f"{place}/run.profd"), ExitCode.UNREADABLE_RUN),
            (("fleet", place), ExitCode.UNREADABLE_RUN),
            (export, ExitCode.UNWRITABLE_OUTPUT),
        ):
            said = profd(*command, code=code)
            assert "there is no key" in said
            assert said.count("\n") == 1, said
    profd(*export)
    opened = MemoryFileSystem._open
    monkeypatch.setattr(
        MemoryFileSystem,
        "_open",
        lambda store, path, *words, **options: (
            refuse() if path.endswith(".parquet") else opened(store, path, *words, **options)
        ),
    )
    said = profd("fleet", place, code=ExitCode.UNREADABLE_RUN)
    said = " ".join(said.split())
    assert re.search(r"cannot be read \([\w.]*CredentialsMissing: there is no key", said)


COMMANDS = [
    ("summary",),
    ("export", "--format", "collapsed"),
    ("report",),
    ("stop",),
    ("view",),
    ("dump",),
]


def refused(profd: CommandLine, code: ExitCode, *words: object) -> str:
    """Run a command that says nothing but one line of what is wrong and what to do, and return
    that.
    """
    line = profd(*words, code=code)
    assert profd.out == ""
    assert re.fullmatch(r"profd: .+: .+\n", line)
    return line


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
@pytest.mark.parametrize(
    ("is_run", "why"), [(False, "is no run file"), (True, "cut short")], ids=["text", "truncated"]
)
def test_what_cannot_be_read_is_said_and_left_as_it_is(
    command: tuple[str, ...], is_run: bool, why: str, tmp_path: Path, profd: CommandLine
) -> None:
    content = (
        write_run(tmp_path / "a.profd", seconds=2).read_bytes()[:-5000]
        if is_run
        else b"no run\n" * 100
    )
    (tmp_path / "a.profd").write_bytes(content)
    assert why in refused(
        profd, ExitCode.UNREADABLE_RUN, command[0], tmp_path / "a.profd", *command[1:]
    )
    assert (tmp_path / "a.profd").read_bytes() == content
    assert list(tmp_path.iterdir()) == [tmp_path / "a.profd"]


def test_what_is_not_there_is_said(tmp_path: Path, profd: CommandLine) -> None:
    empty = (
        ("summary", tmp_path),
        ("report", tmp_path),
        ("view", tmp_path),
        ("diff", tmp_path, tmp_path),
    )
    for words in (*empty, ("summary", "nothing"), ("summary", "latest")):
        refused(profd, ExitCode.NO_RUN, *words)
    refused(profd, ExitCode.NO_PROCESS, "attach", 2**40)
