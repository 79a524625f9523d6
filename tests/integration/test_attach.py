"""`profd attach` without a terminal: it records, says so, ends in every way it should, and the
target runs on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launches import PROFD, state
from support.sessions import control_of, hand_over, running
from support.waiting import until

from profd.daemon import paths
from profd.daemon.errors import ExitCode
from profd.daemon.store.reader import RunReader

WAITING = """
import ctypes, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # Yama lets anyone read this process
print("ready", flush=True)
sys.stdin.read()
"""
TIMEOUT_S = 60
pytestmark = pytest.mark.usefixtures("py_spy")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[int]:
    """Run a script called ``busy.py``."""
    script = tmp_path / "busy.py"
    script.write_text(WAITING)
    with running(script, "--token", "hunter2") as process:
        yield process.pid


def attach(pid: int, *options: str) -> subprocess.Popen[str]:
    """Start an attach and wait until it says that it records."""
    process = subprocess.Popen(
        [PROFD, "attach", str(pid), "--headless", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == f"profd: attaching to pid {pid}\n"
    first = process.stderr.readline()
    assert first.startswith(f"profd: recording pid {pid}"), first + process.stderr.read()
    return process


def assert_summed_up(process: subprocess.Popen[str]) -> RunReader:
    """Check that an attach ends well with its closing lines, and return its run."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert out == ""
    assert err.splitlines()[-1].startswith("report: profd report ")
    reader = RunReader(paths.find_run(err.splitlines()[-1].split()[-1]))
    # A recording that is ended as soon as it has begun may have no sample; the code says so then,
    # and only then.
    assert process.returncode == (
        ExitCode.OK if reader.recorded().whole else ExitCode.NO_SAMPLES
    ), err
    return reader


def test_duration_ends_it(target: int) -> None:
    with assert_summed_up(attach(target, "--duration", "1")) as reader:
        assert (reader.info.state, reader.info.why_ended) == ("ended", "duration")
        assert (reader.info.mode, reader.info.name, reader.info.target.pid) == (
            "attached",
            "busy",
            target,
        )
        assert "hunter2" not in str(reader.info.command)
    assert state(target) in "RS"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_recording_and_not_the_target(target: int, number: signal.Signals) -> None:
    process = attach(target)
    process.send_signal(number)
    with assert_summed_up(process) as reader:
        assert (reader.info.state, reader.info.why_ended) == ("ended", "stopped")
    assert state(target) in "RS"


def test_stop_from_elsewhere_ends_it(target: int) -> None:
    process = attach(target, "--name", "mine")
    hand_over(paths.find_run("mine"))
    stopped = subprocess.run(
        [PROFD, "stop", "mine"], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert stopped.returncode == 0, stopped.stderr
    assert "has ended" in stopped.stderr
    with RunReader(paths.find_run("mine")) as reader:
        assert reader.info.state == "ended"
        assert sum(recording.samples for recording in reader.recordings()) > 0
    assert_summed_up(process).close()
    assert state(target) in "RS"


def log_out(home: Path) -> None:
    """Take the folder of sockets away, as the login's own is at logout: nothing can be made there
    either.

    A session makes the folder again when it finds it gone, so both are repeated until a file stands
    in its place.
    """
    folder = home / "run"
    while not folder.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(FileExistsError):
            folder.touch(exist_ok=False)


@pytest.mark.parametrize("how", ["stop from elsewhere", "signal"])
def test_it_ends_after_a_logout_too(target: int, profd_home: Path, how: str) -> None:
    process = attach(target, "--name", "mine")
    log_out(profd_home)
    if how == "signal":
        process.send_signal(signal.SIGINT)
    else:
        subprocess.run([PROFD, "stop", "mine"], capture_output=True, timeout=TIMEOUT_S, check=True)
    assert_summed_up(process).close()
    assert state(target) in "RS"


def test_a_session_is_reached_again_after_the_next_login(target: int, profd_home: Path) -> None:
    process = attach(target, "--name", "mine")
    log_out(profd_home)
    (profd_home / "run").unlink()
    with RunReader(paths.find_run("mine")) as reader:
        until(Path(reader.info.control_socket).exists, "the socket")
        with contextlib.closing(control_of(Path(reader.info.control_socket))) as client:
            assert client.hello().run_id == reader.info.id
    process.send_signal(signal.SIGINT)
    assert_summed_up(process).close()


def test_a_killed_session_is_reported_and_the_target_runs_on(target: int) -> None:
    process = attach(target, "--name", "killed")
    with RunReader(paths.find_run("killed")) as reader:
        os.kill(reader.info.recorder.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 74
    assert "was cut off" in err
    assert "Traceback" not in err
    assert state(target) in "RS"
