"""A signal to `profd run` reaches the script, and reaches it once, whoever else got it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from support import launches
from support.present import there
from support.waiting import DEADLINE_S

COUNTING = """
import os, signal, sys
seen = 0
def count(number, frame):
    global seen
    seen += 1
    os.write(1, b"got\\n")
def tell(number, frame):
    with open(sys.argv[2], "w") as file:
        file.write(str(seen))
    os._exit(5)
for name in sys.argv[1].split(","):
    signal.signal(getattr(signal, name), count)
signal.signal(signal.SIGRTMAX, tell)
print("ready", os.getpid())
while True:
    signal.pause()
"""
"""Counts signals; SIGRTMAX, handled after all others, writes the count and ends it with 5."""
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT", "SIGALRM", "SIGWINCH")


def test_each_signal_to_profd_reaches_the_script_once(tmp_path: Path) -> None:
    launched = launches.start(*launches.PYTHON, COUNTING, ",".join(NAMES), str(tmp_path / "count"))
    launches.read_ready(launched)
    for name in NAMES:
        os.kill(launched.pid, getattr(signal, name))
        assert there(launched.stdout).readline() == b"got\n"
    os.kill(launched.pid, signal.SIGRTMAX)
    assert launches.finish(launched)[2] == 5
    assert (tmp_path / "count").read_text() == str(len(NAMES))


def test_signal_to_the_group_reaches_the_script_once(tmp_path: Path) -> None:
    command = [*launches.PYTHON, COUNTING, "SIGTERM", str(tmp_path / "count")]
    launched = launches.start(*command, before=os.setpgrp)
    script_pid = launches.read_ready(launched)
    os.killpg(launched.pid, signal.SIGTERM)
    assert there(launched.stdout).readline() == b"got\n"
    os.kill(launched.pid, signal.SIGRTMAX)
    assert launches.finish(launched)[2] == 5
    assert (tmp_path / "count").read_text() == "1"
    assert not launches.is_alive(script_pid)


def test_signal_from_the_script_is_not_sent_back() -> None:
    code = """
import os, signal
signal.signal(signal.SIGTERM, lambda number, frame: os.write(1, b"got\\n"))
signal.signal(signal.SIGRTMAX, lambda number, frame: os._exit(5))
os.killpg(0, signal.SIGTERM)
os.kill(os.getppid(), signal.SIGTERM)
print("ready", os.getpid())
while True:
    signal.pause()
"""
    launched = launches.start(*launches.PYTHON, code, before=os.setpgrp)
    assert there(launched.stdout).readline() == b"got\n"
    launches.read_ready(launched)
    os.kill(launched.pid, signal.SIGRTMAX)
    assert launches.finish(launched)[0::2] == (b"", 5)


def test_interrupt_key_reaches_the_script_once(tmp_path: Path) -> None:
    launched, keys_fd = start_on_terminal("SIGINT", tmp_path / "count")
    os.write(keys_fd, b"\x03")
    assert b"got" in read_line(keys_fd)
    os.kill(launched.pid, signal.SIGRTMAX)
    assert launched.wait(DEADLINE_S) == 5
    assert (tmp_path / "count").read_text() == "1"
    os.close(keys_fd)


def test_hangup_of_the_terminal_reaches_the_script(tmp_path: Path) -> None:
    """The kernel tells the leader of the session alone, which would be the script if profd were not
    there.
    """
    launched, keys_fd = start_on_terminal("SIGHUP", tmp_path / "count")
    os.close(keys_fd)
    # The script's line about the signal has nowhere to go: it fails, and that ends the script.
    assert launched.wait(DEADLINE_S) == 1


def test_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    code = """
import os, signal, sys
print("ready", os.getpid())
sys.stdin.readline()
print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
"""
    launched = launches.start(
        *launches.PYTHON, code, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    launches.read_ready(launched)
    os.kill(launched.pid, signal.SIGHUP)
    assert launches.finish(launched)[0::2] == (b"True\n", 0)


def test_ignored_children_do_not_cost_the_exit_code() -> None:
    """Where SIGCHLD is ignored the kernel throws exit codes away."""
    done = launches.run(
        *launches.PYTHON,
        "import signal, sys; sys.exit(4 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN "
        "else 0)",
        before=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert done.returncode == 4


@pytest.mark.parametrize(
    "ignored", [(), (signal.SIGPIPE,), (signal.SIGXFSZ,), (signal.SIGPIPE, signal.SIGUSR1)]
)
def test_signals_that_python_ignores_are_as_they_were(ignored: tuple[signal.Signals, ...]) -> None:
    """Python ignores SIGPIPE and SIGXFSZ before its first line: what they were is known from before
    its start.

    The kernel says it of a program that is not Python, which would ignore them anyway.
    """

    def prepare() -> None:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    look = ("grep", "SigIgn", "/proc/self/status")
    plainly = subprocess.run(look, stdout=subprocess.PIPE, check=True, preexec_fn=prepare)
    assert all(int(plainly.stdout.split()[1], 16) >> number - 1 & 1 for number in ignored)
    assert launches.run("--quiet", *look, before=prepare).stdout == plainly.stdout


def start_on_terminal(name: str, count: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start the counting script on a terminal of its own, and return the other end of that once it
    is ready.
    """
    keys_fd, terminal_fd = os.openpty()

    def adopt() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    launched = subprocess.Popen(
        [
            launches.PROFD,
            "run",
            "--headless",
            sys.executable,
            "-u",
            "-c",
            COUNTING,
            name,
            str(count),
        ],
        stdin=terminal_fd,
        stdout=terminal_fd,
        stderr=terminal_fd,
        preexec_fn=adopt,
    )
    os.close(terminal_fd)
    assert b"ready" in read_line(keys_fd)
    return launched, keys_fd


def read_line(fd: int) -> bytes:
    """Read up to the next end of line."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(fd, 1)
    return line
