"""Whatever becomes of profd's own streams, the script's exit code is passed on, and no command
shows a traceback.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import launches
from support.noderuns import write_folder
from support.synthetic import write_run
from support.waiting import DEADLINE_S

from profd.cli.main import run_command_line
from profd.daemon import paths
from profd.daemon.errors import ExitCode

ENDS = {
    7: "exit 7",
    128 + signal.SIGTERM: "kill -TERM $$",
}
"""Exit codes as a shell gives them, and scripts that end so."""


@dataclass
class Streams:
    """What a program finds in the places of stdout and stderr; ``given`` are arguments of Popen."""

    given: Mapping[str, Any] = field(default_factory=dict)
    let_go: Callable[[], None] = lambda: None


@contextmanager
def full(name: str) -> Iterator[Streams]:
    with Path("/dev/full").open("wb") as file:
        yield Streams({name: file})


@contextmanager
def closed(fd: int) -> Iterator[Streams]:
    yield Streams({"preexec_fn": lambda: os.close(fd)})


@contextmanager
def reader_gone(name: str) -> Iterator[Streams]:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    yield Streams({name: write_fd})
    os.close(write_fd)


@contextmanager
def reader_leaves() -> Iterator[Streams]:
    """Give a stderr that is read until the script runs."""
    read_fd, write_fd = os.pipe()
    yield Streams({"stderr": write_fd}, lambda: os.close(read_fd))
    os.close(write_fd)


BROKEN: Mapping[str, Callable[[], AbstractContextManager[Streams]]] = {
    "stderr is full": lambda: full("stderr"),
    "stderr is closed": lambda: closed(2),
    "stderr has no reader": lambda: reader_gone("stderr"),
    "stderr loses its reader": reader_leaves,
    "stdout is full": lambda: full("stdout"),
    "stdout is closed": lambda: closed(1),
}


@pytest.mark.parametrize(
    ("state", "is_unbuffered"),
    [*((state, False) for state in BROKEN), ("stderr is full", True), ("stdout is full", True)],
)
def test_the_exit_code_is_the_scripts(state: str, is_unbuffered: bool, tmp_path: Path) -> None:
    """All scripts end at once, after each is recorded and its reader has left."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONUNBUFFERED": "1"} if is_unbuffered else {}
    go, running = tmp_path / "go", {}
    with BROKEN[state]() as streams:
        for code, end in ENDS.items():
            script = f"until [ -e {go} ]; do sleep 0.02; done; {end}"
            words = [launches.PROFD, "run", "--headless", "--", "sh", "-c", script]
            given = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **streams.given}
            running[code] = subprocess.Popen(words, env=environment, **given)
        for process in running.values():
            launches.session_pid(process.pid)
        streams.let_go()
        go.touch()
        codes = {code: process.wait(DEADLINE_S) for code, process in running.items()}
    shown = {code: found if found >= 0 else 128 - found for code, found in codes.items()}
    assert shown == {code: code for code in ENDS}


PRINTING = (
    "--help",
    "ls",
    "ls --json",
    "doctor",
    "summary latest",
    "summary latest --json",
    "report latest -o {tmp}/report.html",
    "export latest --format collapsed",
    "export latest --format pprof",
    "export latest --format csv -o {tmp}/tables",
    "diff latest latest",
    "diff latest latest --json",
    "dump {pid}",
    "dump {pid} --json",
    "fleet {tmp}/fleet",
    "view {tmp}/nodes",
    "daemon --check",
)


@pytest.fixture
def place(tmp_path: Path) -> Mapping[str, object]:
    """Make a run, the files of two nodes and a data set, and return what stands for them in a
    command.
    """
    write_run(paths.make_private(paths.runs_folder()) / "made-1.profd")
    write_folder(tmp_path / "nodes")
    assert (
        run_command_line(["export", "latest", "--format", "parquet", "--to", f"{tmp_path}/fleet"])
        == ExitCode.OK
    )
    return {"tmp": tmp_path, "pid": os.getpid()}


def printed(
    words: str, place: Mapping[str, object], streams: Streams
) -> subprocess.CompletedProcess[bytes]:
    command = [launches.PROFD, *words.format(**place).split()]
    given = {"stdout": subprocess.DEVNULL, **streams.given}
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=DEADLINE_S, **given
    )


OF_EACH_KIND = (
    "--help",
    "ls --json",
    "summary latest",
    "export latest --format pprof",
    "view {tmp}/nodes",
)
"""Commands that write to stdout in ways of their own: click's, JSON, text, bytes, and a question."""


@pytest.mark.parametrize(
    ("state", "printing"),
    [(lambda: full("stdout"), PRINTING), (lambda: closed(1), OF_EACH_KIND)],
    ids=["full", "closed"],
)
def test_a_stdout_that_takes_nothing_is_one_line_and_a_code(
    state: Callable[[], AbstractContextManager[Streams]],
    printing: tuple[str, ...],
    place: Mapping[str, object],
) -> None:
    for words in printing:
        with state() as streams:
            done = printed(words, place, streams)
        if words.startswith(("doctor", "view")) and done.returncode != ExitCode.UNWRITABLE_OUTPUT:
            # it found a fault of this machine, or asks where nobody can answer: that has a code of
            # its own
            continue
        assert done.returncode == ExitCode.UNWRITABLE_OUTPUT, (words, done)
        assert done.stderr.startswith(b"profd: stdout cannot be written ("), words
        assert done.stderr.count(b"\n") == 1, (words, done.stderr)


def test_a_reader_that_left_is_no_news(place: Mapping[str, object]) -> None:
    for words in OF_EACH_KIND:
        with reader_gone("stdout") as streams:
            done = printed(words, place, streams)
        if not words.startswith("view"):  # it asks where nobody can answer
            assert (done.returncode, done.stderr) == (ExitCode.FAILURE, b""), words
