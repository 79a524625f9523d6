"""Which processes a script has left running, by real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.present import there
from support.waiting import until

from profd.daemon import processes
from profd.daemon.launch.leftovers import left_running

STARTER = """
import os, subprocess, sys
words = [*sys.argv[1:], sys.executable, "-c", "input()", "train.py", "--token", "hunter2"]
print(subprocess.Popen(words, stdout=subprocess.DEVNULL).pid)
"""


@pytest.fixture
def held_open() -> Iterator[int]:
    """Give the end of a pipe that what is left waits for."""
    end, other = os.pipe()
    yield end
    os.close(other)
    os.close(end)


def leave(stdin: int, *before: str, **variables: str) -> int:
    """Run a script that starts a Python and ends; return its PID once its parent is gone."""
    words, environment = [sys.executable, "-c", STARTER, *before], {**os.environ, **variables}
    said = subprocess.run(
        words, stdin=stdin, stdout=subprocess.PIPE, check=True, env=environment
    ).stdout
    pid = int(said)
    until(
        lambda: processes.command_line(pid)[-1:] == ("hunter2",),
        "what is left runs its own program",
    )
    return pid


def found(pid: int, session: int) -> list[tuple[str, ...]]:
    left = left_running(there(processes.read_stat(pid)).start_ticks, session)
    return [one.command for one in left if one.pid == pid]


def test_what_a_script_leaves_in_its_session_is_named_with_its_secrets_masked(
    held_open: int,
) -> None:
    pid = leave(held_open, A_VARIABLE="that is not ours")
    try:
        (command,) = found(pid, os.getsid(0))
        assert command[-3:] == ("train.py", "--token", "***")
        ticks = there(processes.read_stat(pid)).start_ticks
        assert pid not in [
            one.pid for one in left_running(ticks + 1, os.getsid(0))
        ]  # it began before the script
    finally:
        os.kill(pid, signal.SIGKILL)


def test_what_became_a_daemon_is_known_by_its_environment(held_open: int) -> None:
    pid = leave(held_open, "setsid")
    other = leave(held_open, "setsid", "env", "-i")
    try:
        until(
            lambda: os.getsid(pid) == pid and os.getsid(other) == other,
            "both have a session of their own",
        )
        assert len(found(pid, os.getsid(0))) == 1
        assert found(other, os.getsid(0)) == []  # nothing says that it is the script's
    finally:
        os.kill(pid, signal.SIGKILL)
        os.kill(other, signal.SIGKILL)


def test_children_that_have_a_parent_are_not_left() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert found(child.pid, os.getsid(0)) == []
        child.kill()


def test_nothing_goes_on_where_profd_is_the_first_process(
    held_open: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, command_line = leave(held_open), processes.command_line
    first = ("/usr/bin/python3", "/usr/bin/profd", "run", "--", "python", "train.py")
    try:
        assert len(found(pid, os.getsid(0))) == 1
        monkeypatch.setattr(
            processes, "command_line", lambda one: first if one == 1 else command_line(one)
        )
        assert found(pid, os.getsid(0)) == []
    finally:
        os.kill(pid, signal.SIGKILL)
