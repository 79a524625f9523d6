"""Waits for what other processes do, and watches what becomes of them."""

from __future__ import annotations

import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from profd.daemon import processes
from profd.daemon.store.reader import RunReader

DEADLINE_S = 30.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition on other processes, looking fifty times a second."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {DEADLINE_S:.0f} s"
        select.select([], [], [], 0.02)


def states_while_running(process: subprocess.Popen[str], seconds: float) -> set[str]:
    """Return the states of a process that were seen within the next ``seconds``."""
    states: set[str] = set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stat = processes.read_stat(process.pid)
        assert stat is not None
        states.add(stat.state)
        select.select([], [], [], 0.005)
    return states


def recorded_until_ns(run_file: Path) -> int:
    """Return up to when a run file has samples; 0 where it has none."""
    with RunReader(run_file) as reader:
        return max((recording.end_ns for recording in reader.recordings()), default=0)
