"""Launches scripts through ``profd run`` for the tests of it, and finds the processes that belong
to a launch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from profd.daemon import processes
from profd.daemon.paths import list_runs
from support.waiting import DEADLINE_S, until

PROFD = str(Path(sys.executable).with_name("profd"))
PYTHON = [sys.executable, "-u", "-c"]

WAITING = """
import os, sys
print("ready", os.getpid())
sys.stdin.readline()
print("done")
sys.exit(3)
"""
"""A script that says it is ready, waits for a line, and ends with 3."""


def run(
    *words: str, given: bytes | None = None, before: Callable[[], object] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command under ``profd run --headless`` to its end.

    ``before`` is called in the process that becomes it.
    """
    command = [PROFD, "run", "--headless", *words]
    return subprocess.run(
        command, input=given, capture_output=True, timeout=DEADLINE_S, preexec_fn=before
    )


def profd(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of profd's to its end."""
    return subprocess.run(
        [PROFD, *words], input="", capture_output=True, text=True, timeout=DEADLINE_S
    )


def printed(ran: subprocess.CompletedProcess[str]) -> Any:  # noqa: ANN401  whatever JSON holds
    """Return the JSON of a command that ended well, with its names as attributes."""
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout, object_hook=lambda fields: SimpleNamespace(**fields))


def start(*command: str, before: Callable[[], object] | None = None) -> subprocess.Popen[bytes]:
    """Start a command under ``profd run --headless``, with pipes."""
    words = [PROFD, "run", "--headless", "--", *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=before)


def read_ready(process: subprocess.Popen[bytes]) -> int:
    """Wait until the script is ready, and return its PID."""
    assert process.stdout is not None
    word, pid = process.stdout.readline().split()
    assert word == b"ready"
    return int(pid)


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, int]:
    """Give the script its line, and return what was written from then on and profd's exit code."""
    out, err = process.communicate(b"\n", timeout=DEADLINE_S)
    return out, err, process.returncode


def session_pid(launcher_pid: int) -> int:
    """Wait until the launcher's session records, and return the session's PID."""
    return until(lambda: recording_session(launcher_pid), "a session that records")


def recording_session(launcher_pid: int) -> int | None:
    """Return the PID of the launcher's session once that records; None before."""
    children = processes.children(launcher_pid)
    found = [pid for pid in children if "profd.daemon.session" in processes.command_line(pid)]
    return found[0] if found and list_runs() and has_announced(found[0]) else None


def has_announced(session_pid: int) -> bool:
    """Say whether a session has said that it records: it lets go of its stdout then."""
    try:
        return str(Path(f"/proc/{session_pid}/fd/1").readlink()) == os.devnull
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    """Say whether a process runs: not gone, not a zombie."""
    return state(pid) not in "ZX"


def state(pid: int) -> str:
    """Return the state of a process; X where it is gone."""
    stat = processes.read_stat(pid)
    return stat.state if stat else "X"
