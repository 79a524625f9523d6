"""The metrics of one run, from the start of their process to its end; its program is made up where that matters."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S, until

from profd.daemon.errors import ExitCode
from profd.daemon.metrics.exporter import PROGRAM, Exporter


@pytest.fixture
def told_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return a function that gives what is told of a run whose metrics process is this program."""

    def tell(program: str) -> list[str]:
        executable, pid_file = tmp_path / "python", tmp_path / "pid"
        executable.write_text(
            f"#!{sys.executable} -SE\n"
            "import os, signal, sys\n"
            f"open({os.fspath(pid_file)!r}, 'w').write(str(os.getpid()))\n"
            f"{program}\n"
        )
        executable.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(executable))
        told: list[str] = []
        exporter = Exporter(None, "http://localhost:4318", told.append)
        exporter.follow(Path("/runs/a.profd"))
        pid = until(lambda: pid_file.read_text() if pid_file.exists() else "", "the start of the process")
        os.waitid(os.P_PID, int(pid), os.WEXITED | os.WNOWAIT)
        exporter.end()
        return told

    return tell


@pytest.mark.parametrize("program", ["", f"sys.exit({int(ExitCode.NO_RUN)})", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_process_that_ends_with_its_run_is_not_spoken_of(
    told_after: Callable[[str], list[str]], program: str, profd_home: Path
) -> None:
    """That of a short run has not come to look at it, or not to start."""
    assert told_after(program) == []
    assert list((profd_home / "run").iterdir()) == []


@pytest.mark.parametrize("program", ["sys.exit('the port is gone')", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_breaks_off_is_told_with_its_log(
    told_after: Callable[[str], list[str]], program: str, profd_home: Path
) -> None:
    log = profd_home / "run" / "a.metrics.log"
    assert told_after(program) == [f"profd: the metrics broke off: see {log}"]
    assert log.exists()


def test_a_process_that_said_nothing_leaves_no_log(tmp_path: Path) -> None:
    log = tmp_path / "metrics.log"
    with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as said:
        words = ["--listener-fd", str(listener.fileno()), "--log", str(log), "--while-stdin"]
        subprocess.run(
            [sys.executable, "-m", PROGRAM, str(tmp_path), *words],
            stdin=subprocess.DEVNULL,
            stderr=said,
            pass_fds=[listener.fileno()],
            check=True,
        )
    assert not log.exists()


def test_a_process_that_said_why_leaves_its_log(tmp_path: Path) -> None:
    log = tmp_path / "metrics.log"
    with log.open("wb") as said:
        words = [sys.executable, "-m", PROGRAM, str(tmp_path / "none.profd"), "--log", str(log)]
        assert subprocess.run(words, stderr=said, check=False).returncode == ExitCode.NO_RUN
    assert "is not being recorded" in log.read_text()


def test_signals_that_a_launcher_holds_back_reach_it(tmp_path: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, str(tmp_path), "127.0.0.1:0"], stderr=subprocess.PIPE
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    assert process.stderr is not None
    with process.stderr:
        process.stderr.readline()  # it serves
        process.terminate()
        try:
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
