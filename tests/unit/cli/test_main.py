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
from support.folders import DOCS
from support.noderuns import JOB, write_folder
from support.synthetic import write_run

from profd.cli import main
from profd.cli.main import load_command, run_command_line
from profd.daemon.errors import ExitCode, NoSuchProcess
from profd.daemon.fleet.dataset import DataSet

Captured = pytest.CaptureFixture[str]


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
    codes = {(int(code), name) for code, name in re.findall(r"^\| (\d+) \| (\w+) \|", PAGE, re.MULTILINE)}
    assert codes == {(code.value, code.name) for code in ExitCode}
    for name in main.COMMANDS:
        command = main.load_command(name)
        assert isinstance(command, click.Command)
        assert command.help


def test_list_of_commands_imports_none_of_them_and_help_of_one_not_what_it_works_with() -> None:
    program = (
        "import sys; from profd.cli.main import run_command_line; run_command_line(['--help']);"
        "print('loaded', *(name for name in sys.modules if name.startswith('profd.')));"
        "run_command_line(['fleet', '--help']);"
        "print(*{'duckdb', 'pyarrow', 'distributed', 'fsspec', 'jinja2'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    help_text, _, rest = ended.stdout.partition("loaded ")
    loaded, *_, beside = rest.split("\n")[:-1]
    assert beside == ""
    assert [
        name for name in main.COMMANDS if not any(line.split()[:1] == [name] for line in help_text.splitlines())
    ] == []
    assert set(loaded.split()) == {
        f"profd.{one}" for one in ("cli", "cli.main", "cli.console", "daemon", "daemon.errors")
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
    outcome: Outcome, capsys: Captured, what: str, said: str
) -> None:
    outcome.raises = NoSuchProcess(what, "try another")
    assert main.run_command_line(["fail"]) == ExitCode.NO_PROCESS
    assert capsys.readouterr() == ("", f"profd: {said}: try another\n")


def test_exit_code_of_a_command_is_passed_on_and_a_mistake_of_ours_not_hidden(outcome: Outcome) -> None:
    assert main.run_command_line(["fail"]) == 0
    outcome.returns = 143
    assert main.run_command_line(["fail"]) == 143
    outcome.raises = KeyboardInterrupt()
    assert main.run_command_line(["fail"]) == 130
    outcome.raises = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        main.run_command_line(["fail"])


@pytest.mark.parametrize("words", [["nonsense"], ["attach", "x"], ["attach", "--rate", "0", "1"]])
def test_wrong_use_ends_with_2_in_clicks_way(words: list[str], capsys: Captured) -> None:
    assert main.run_command_line(words) == ExitCode.USAGE
    assert "Usage: profd" in capsys.readouterr().err
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


PAGE = (DOCS / "commands.md").read_text()


@pytest.mark.parametrize("name", ["attach", "summary", "export", "diff", "fleet"])
def test_every_option_is_documented(name: str) -> None:
    command = load_command(name)
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
    assert [option for option in options if option not in PAGE] == []


class CredentialsMissing(Exception):
    """What the package of a store raises is its own, and mostly no OSError."""


class LockedStore(MemoryFileSystem):  # type: ignore[misc]
    """A store in memory that lets nobody in who has no key."""

    protocol = "locked"
    store: dict[str, object] = {}
    pseudo_dirs: list[str] = [""]
    is_open = False

    def _let_in(self) -> None:
        if not self.is_open:
            raise CredentialsMissing("there is no key\nto this store")

    def info(self, path: str, **options: object) -> Any:  # noqa: ANN401
        self._let_in()
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: object) -> Any:  # noqa: ANN401
        self._let_in()
        return super().ls(path, detail, **options)

    def _open(self, path: str, *words: object, **options: object) -> Any:  # noqa: ANN401
        if path.endswith(".parquet"):
            self._let_in()
        return super()._open(path, *words, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "job")


@pytest.fixture
def url(folder: Path) -> str:
    """Give the URL of such a folder, with something beside the runs."""
    url = f"memory://{folder.parent.name}/job"
    files, root = fsspec.core.url_to_fs(url)
    files.makedirs(root)
    for path in folder.iterdir():
        files.put_file(str(path), f"{root}/{path.name}")
    files.pipe_file(f"{root}/notes.txt", b"no run")
    return url


def test_a_job_behind_a_url_is_read_as_one_run_and_nothing_is_left(
    url: str, folder: Path, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())

    def said(*words: str) -> str:
        assert run_command_line(list(words)) == ExitCode.OK
        return capsys.readouterr().out

    assert json.loads(said("summary", url, "--json"))["run"] == f"{JOB} on 2 nodes"
    stacks = said("export", url, "--format", "collapsed")
    assert stacks == said("export", str(folder), "--format", "collapsed") != ""
    told = json.loads(said("diff", url, str(folder), "--json"))
    assert {told["base"]["run"], told["new"]["run"]} == {f"{JOB} on 2 nodes"}
    assert [change for change in told["functions"] if change["is_significant"]] == []
    assert set(tmp_path.iterdir()) == before
    said("export", url, "--format", "parquet", "--to", str(tmp_path / "fleet"))
    assert [one.run for one in DataSet(str(tmp_path / "fleet")).manifests()] == ["run-0@node0", "run-1@node1"]


@pytest.mark.parametrize(("rest", "named"), [("", "job.html"), ("/", "job.html"), ("/0.profd", "0.html")])
def test_a_report_is_named_after_the_last_part_of_the_url(
    url: str, rest: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["report", url + rest]) == ExitCode.OK
    assert capsys.readouterr().out == f"{named}\n"
    assert (tmp_path / named).exists()


def test_what_cannot_be_fetched_is_said(url: str, capsys: Captured) -> None:
    for wrong, code, why in (
        (f"{url}/none", ExitCode.UNREADABLE_RUN, "cannot read"),
        (f"{url}/2.profd", ExitCode.UNREADABLE_RUN, "cannot read"),
        ("memory://empty-of-runs", ExitCode.UNREADABLE_RUN, "cannot read"),
        ("nosuch://bucket/job", ExitCode.USAGE, "no place"),
    ):
        assert run_command_line(["summary", wrong]) == code, wrong
        assert why in capsys.readouterr().err
    files, root = fsspec.core.url_to_fs(f"{url}/empty")
    files.makedirs(root)
    assert run_command_line(["summary", f"{url}/empty"]) == ExitCode.NO_RUN
    assert "holds no run files" in capsys.readouterr().err


def test_errors_of_a_stores_own_are_one_line(
    url: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"locked://{tmp_path.name}"
    fsspec.register_implementation("locked", LockedStore, clobber=True)
    for command, code in (
        (["summary", f"{place}/run.profd"], ExitCode.UNREADABLE_RUN),
        (["fleet", place], ExitCode.UNREADABLE_RUN),
        (["export", url, "--format", "parquet", "--to", place], ExitCode.UNWRITABLE_OUTPUT),
    ):
        assert run_command_line(command) == code, command
        said = capsys.readouterr().err
        assert "there is no key" in said
        assert said.count("\n") == 1, said
    with monkeypatch.context() as opened:
        opened.setattr(LockedStore, "is_open", True)
        assert run_command_line(["export", url, "--format", "parquet", "--to", place]) == ExitCode.OK
    monkeypatch.setattr(LockedStore, "info", MemoryFileSystem.info)
    monkeypatch.setattr(LockedStore, "ls", MemoryFileSystem.ls)
    capsys.readouterr()
    assert run_command_line(["fleet", place]) == ExitCode.UNREADABLE_RUN
    assert "cannot be read (CredentialsMissing: there is no key" in " ".join(capsys.readouterr().err.split())


COMMANDS = [("summary",), ("export", "--format", "collapsed"), ("report",), ("stop",), ("view",), ("dump",)]


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


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
@pytest.mark.parametrize(("is_run", "why"), [(False, "is no run file"), (True, "cut short")], ids=["text", "truncated"])
def test_what_cannot_be_read_is_said_and_left_as_it_is(
    command: tuple[str, ...], is_run: bool, why: str, tmp_path: Path, capsys: Captured
) -> None:
    content = write_run(tmp_path / "a.profd", seconds=2).read_bytes()[:-5000] if is_run else b"no run\n" * 100
    (tmp_path / "a.profd").write_bytes(content)
    code, line = refused(capsys, command[0], tmp_path / "a.profd", *command[1:])
    assert code == ExitCode.UNREADABLE_RUN
    assert why in line
    assert (tmp_path / "a.profd").read_bytes() == content
    assert list(tmp_path.iterdir()) == [tmp_path / "a.profd"]


def test_what_is_not_there_is_said(tmp_path: Path, capsys: Captured) -> None:
    for words in (("summary", tmp_path), ("report", tmp_path), ("view", tmp_path), ("diff", tmp_path, tmp_path)):
        assert refused(capsys, *words)[0] == ExitCode.NO_RUN  # the folder is empty
    for name in ("nothing", "latest"):
        assert refused(capsys, "summary", name)[0] == ExitCode.NO_RUN
    assert refused(capsys, "attach", str(2**40))[0] == ExitCode.NO_PROCESS
