"""`profd run` on a terminal: the dashboard has it, the script has one of its own, and each may go
before the other.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import launches
from support.scriptterminals import OnTerminal
from support.waiting import DEADLINE_S, until

pytestmark = pytest.mark.usefixtures("py_spy")

ECHOING = """
import os, sys
for line in sys.stdin:
    print("script read", line.strip(), *os.get_terminal_size())
    if line == "end\\n":
        sys.exit(3)
"""
"""Repeats its lines with the size of its terminal, until one that says end."""

INTERRUPTED = """
import sys
try:
    print("ready", flush=True)
    sys.stdin.readline()
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
sys.exit(3)
"""
"""Goes on when it is interrupted, until it gets a line."""

Start = Callable[..., OnTerminal]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start launches that are closed at the end."""
    started = []

    def begin(*command: str, held: Path | None = None) -> OnTerminal:
        started.append(OnTerminal(*command, held=held))
        return started[-1]

    yield begin
    for launch in started:
        launch.close()


def start_echoing(start: Start) -> tuple[OnTerminal, int]:
    """Start the echoing script, and return the launch and the dashboard's PID once that is open."""
    launch = start(*launches.PYTHON, ECHOING)
    return launch, int(launch.expect(b"dashboard"))


def end_script(launch: OnTerminal) -> None:
    """Let the script end that is shown, and see that everything is as it was."""
    launch.type(b"end\r")
    launch.expect(b"script read end")
    launch.expect(b"farewell")
    assert launch.launcher.wait(DEADLINE_S) == 3
    assert launch.current_modes() == launch.modes


def test_script_is_shown_once_the_dashboard_is_left_resized_with_its_window_and_interrupted(
    start: Start,
) -> None:
    launch, _ = start_echoing(start)
    launch.type(b"q")
    assert b"`profd view` elsewhere comes back" in launch.expect(b"the dashboard is closed")
    launch.type(b"hello\r")
    assert launch.expect(b"script read hello") == b"120 36"
    launch.resize(10, 20)
    until(lambda: size_seen(launch) == b"20 10", "the new size")
    launch.type(b"\x03")
    launch.expect(b"KeyboardInterrupt")
    assert launch.launcher.wait(DEADLINE_S) == -signal.SIGINT
    assert launch.current_modes() == launch.modes


def test_a_script_that_was_interrupted_before_there_is_a_dashboard_gets_none(
    start: Start, tmp_path: Path
) -> None:
    os.mkfifo(held := tmp_path / "held")
    launch = start(*launches.PYTHON, INTERRUPTED, held=held)
    launch.expect(b"ready")
    launch.type(b"\x03")
    launch.expect(b"interrupted")
    held.write_bytes(b"")
    launch.expect(b"no dashboard opens")
    launch.type(b"end\r")
    launch.expect(b"farewell")
    assert launch.launcher.wait(DEADLINE_S) == 3
    assert launch.current_modes() == launch.modes


def test_dashboard_stays_when_the_script_has_ended(start: Start) -> None:
    launch, dashboard_pid = start_echoing(start)
    session_pid = launches.session_pid(launch.launcher.pid)
    launch.type(b"end\n")
    until(lambda: not launches.is_alive(session_pid), "the session's end")
    assert launches.is_alive(dashboard_pid)
    launch.type(b"q")
    assert launch.launcher.wait(DEADLINE_S) == 3
    assert launch.current_modes() == launch.modes


def test_killed_dashboard_leaves_terminal_and_script_whole(start: Start) -> None:
    launch, dashboard_pid = start_echoing(start)
    os.kill(dashboard_pid, signal.SIGKILL)
    assert b"the dashboard was killed" in launch.expect(b"\x1b[?1049l")
    end_script(launch)


def test_output_of_a_script_that_ends_before_there_is_a_dashboard_is_seen(
    start: Start, profd_home: Path
) -> None:
    (
        profd_home / "run"
    ).touch()  # where its folder of sockets should be: the session will not start
    launch = start(*launches.PYTHON, "print('no such option'); raise SystemExit(2)")
    launch.expect(b"no such option")
    assert launch.launcher.wait(DEADLINE_S) == 2
    assert launch.current_modes() == launch.modes


def size_seen(launch: OnTerminal) -> bytes:
    """Ask the script for the size of its terminal."""
    launch.type(b"?\r")
    return launch.expect(b"script read ?")


def test_signal_to_profd_reaches_a_script_on_its_own_terminal(start: Start) -> None:
    launch, dashboard_pid = start_echoing(start)
    os.kill(launch.launcher.pid, signal.SIGTERM)
    session_pid = launches.session_pid(launch.launcher.pid)
    until(lambda: not launches.is_alive(session_pid), "the session's end")
    assert launches.is_alive(dashboard_pid)
    os.kill(launch.launcher.pid, signal.SIGTERM)
    assert launch.launcher.wait(DEADLINE_S) == -signal.SIGTERM
    assert not launches.is_alive(dashboard_pid)
    assert launch.current_modes() == launch.modes


def test_a_stopped_dashboard_goes_on_where_no_shell_would_take_the_terminal(start: Start) -> None:
    launch, dashboard_pid = start_echoing(start)
    os.kill(dashboard_pid, signal.SIGSTOP)
    launch.type(b"q")
    launch.expect(b"the dashboard is closed")
    end_script(launch)
