"""Nothing that happens to profd changes the script: not its output, not its exit code, not its life."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import launches
from support.waiting import DEADLINE_S

from profd.daemon import processes

pytestmark = pytest.mark.usefixtures("py_spy")


def test_session_that_does_not_start_changes_nothing(profd_home: Path) -> None:
    (profd_home / "run").touch()  # where its folder of sockets should be
    done = launches.run(*launches.PYTHON, "print('out'); raise SystemExit(3)")
    assert (done.stdout, done.returncode) == (b"out\n", 3)
    assert done.stderr.startswith(b"profd: nothing is recorded: ")
    assert done.stderr.count(b"\n") == 1


def test_nothing_is_left_running() -> None:
    launched = launches.start(*launches.PYTHON, launches.WAITING)
    script_pid = launches.read_ready(launched)
    launches.session_pid(launched.pid)
    started = launches.descendants(launched.pid)
    assert script_pid in started
    launches.finish(launched)
    assert not [processes.command_line(pid) for pid in started if launches.is_alive(pid)]


HANGING = """
import sys, threading
from pathlib import Path
from profd.daemon.launch.launch import Plan, launch

def wait_closed(timeout_s):
    print("closing", file=sys.stderr, flush=True)
    threading.Event().wait()

command = (sys.executable, "-c", "raise SystemExit(3)")
sys.exit(launch(Plan(command, lambda script, link: (Path("/none"), wait_closed), farewell=None, narrate=print)))
"""
"""What ``profd run`` does, with a session that never closes its file."""


def test_second_interrupt_does_not_wait_for_the_session() -> None:
    """The script is over; whoever interrupts now wants the prompt back, and the script's exit code."""
    with subprocess.Popen([sys.executable, "-c", HANGING], stderr=subprocess.PIPE) as launched:
        assert launched.stderr is not None
        assert launched.stderr.readline() == b"closing\n"
        launched.send_signal(signal.SIGINT)
        assert launched.wait(DEADLINE_S) == 3
