"""The metrics of one run, from the start of their process to its end.

Its program is made up where that matters.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.beginnings import beginning_of
from support.present import there
from support.waiting import DEADLINE_S, until

from profd.daemon.errors import ExitCode, MissingTool, UsageError
from profd.daemon.installation import install_extra
from profd.daemon.metrics import exporter


@pytest.fixture
def messages_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return a function that gives the messages about a run whose metrics process is this program."""

    def run(program: str) -> list[str]:
        executable, pid_file = tmp_path / "python", tmp_path / "pid"
        executable.write_text(
            f"#!{sys.executable} -SE\n"
            "import os, signal, sys\n"
            f"open({os.fspath(pid_file)!r}, 'w').write(str(os.getpid()))\n"
            f"{program}\n"
        )
        executable.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(executable))
        messages: list[str] = []
        running = exporter.Exporter(None, "http://localhost:4318", messages.append)
        running.follow(Path("/runs/a.profd"))
        pid = until(
            lambda: pid_file.read_text() if pid_file.exists() else "", "the start of the process"
        )
        os.waitid(os.P_PID, int(pid), os.WEXITED | os.WNOWAIT)
        running.end()
        return messages

    return run


@pytest.mark.parametrize(
    "program", ["", f"sys.exit({int(ExitCode.NO_RUN)})", "os.kill(os.getpid(), signal.SIGTERM)"]
)
def test_a_process_that_ends_with_its_run_is_not_spoken_of(
    messages_after: Callable[[str], list[str]], program: str, profd_home: Path
) -> None:
    """That of a short run has not come to look at it, or not to start."""
    assert messages_after(program) == []
    assert list((profd_home / "run").iterdir()) == []


@pytest.mark.parametrize(
    "program", ["sys.exit('the port is gone')", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_a_metrics_process_that_breaks_off_is_reported_with_its_log(
    messages_after: Callable[[str], list[str]], program: str, profd_home: Path
) -> None:
    log = profd_home / "run" / "a.metrics.log"
    assert messages_after(program) == [f"profd: the metrics broke off: see {log}"]
    assert log.exists()


def test_a_process_that_said_nothing_leaves_no_log(tmp_path: Path) -> None:
    log = tmp_path / "metrics.log"
    with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as said:
        words = ["--listener-fd", str(listener.fileno()), "--log", str(log), "--while-stdin"]
        subprocess.run(
            [sys.executable, "-m", exporter.PROGRAM, str(tmp_path), *words],
            stdin=subprocess.DEVNULL,
            stderr=said,
            pass_fds=[listener.fileno()],
            check=True,
        )
    assert not log.exists()
    with log.open("wb") as said:  # one that said why leaves it
        words = [
            sys.executable,
            "-m",
            exporter.PROGRAM,
            str(tmp_path / "none.profd"),
            "--log",
            str(log),
        ]
        assert subprocess.run(words, stderr=said, check=False).returncode == ExitCode.NO_RUN
    assert "is not being recorded" in log.read_text()


def test_signals_that_a_launcher_holds_back_reach_it(tmp_path: Path) -> None:
    words = [sys.executable, "-m", exporter.PROGRAM, str(tmp_path), "127.0.0.1:0"]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        process = subprocess.Popen(words, stderr=subprocess.PIPE)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    with there(process.stderr) as said:
        said.readline()  # it serves
        process.terminate()
        try:
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


def test_the_process_comes_before_its_session_when_memory_ends_and_has_no_rights_before_anybody_can_ask_it(
    tmp_path: Path,
) -> None:
    words = (str(tmp_path), "127.0.0.1:0")
    begun = beginning_of(
        "metrics.__main__", "processes.volunteer", "rights.drop", "metrics.runs.Runs", words=words
    )
    assert begun == ["volunteer(600,)", f"drop({tmp_path!r},)", "Runs"]


def test_an_address_is_a_port_with_or_without_a_host_or_is_refused() -> None:
    assert (
        exporter.parse_address("9400")
        == exporter.parse_address(":9400")
        == exporter.ListenAddress("127.0.0.1", 9400)
    )
    assert exporter.parse_address("0.0.0.0:0") == exporter.ListenAddress("0.0.0.0", 0)
    assert exporter.parse_address("[::1]:9400") == exporter.ListenAddress("::1", 9400)
    assert exporter.parse_address("localhost:80") == exporter.ListenAddress("localhost", 80)
    for text in ("", "9400:", "localhost", "65536", "-1", "٣", "host:port"):
        with pytest.raises(UsageError, match=r"0\.0\.0\.0:9400"):
            exporter.parse_address(text)


def test_a_port_in_use_and_a_foreign_address_are_refused() -> None:
    with contextlib.closing(exporter.listen(exporter.ListenAddress("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} .*in use.*choose another port"):
            exporter.Exporter(str(port), None, print)
    with pytest.raises(UsageError, match=r"192\.0\.2\.1 port 0"):
        exporter.listen(exporter.ListenAddress("192.0.2.1", 0))


def test_without_an_address_no_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    nothing = exporter.Exporter(None, None, pytest.fail)
    nothing.follow(tmp_path / "a.profd")
    nothing.end()


def test_a_port_is_free_again_at_once_and_addresses_of_six_have_brackets() -> None:
    with exporter.listen(exporter.ListenAddress("127.0.0.1", 0)) as listener:
        address = exporter.ListenAddress(*listener.getsockname())
        with socket.create_connection(address) as client:
            listener.accept()[0].close()  # the side that closes first keeps the port for a while
            assert client.recv(1) == b""
    exporter.listen(address).close()
    try:
        listener = exporter.listen(exporter.ListenAddress("::1", 0))
    except UsageError:
        pytest.skip("this machine has no IPv6")
    with contextlib.closing(listener):
        assert exporter.url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}/metrics"


def test_what_is_no_endpoint_says_what_is_and_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for endpoint in ("localhost:4318", "http://", "grpc://localhost:4317", ""):
        with pytest.raises(UsageError, match="http://localhost:4318"):
            exporter.check_endpoint(endpoint)
    monkeypatch.setitem(exporter._NEEDED, "otlp", "no_such_package.at.all")
    with pytest.raises(MissingTool, match=re.escape(install_extra("otlp"))):
        exporter.check_installed("otlp")
