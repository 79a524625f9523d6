"""Real supervisors for integration tests: `profd daemon` with its journal read line by line, and short jobs for it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from sessions import PROGRAMS, wait_ready

from profd.daemon.host.journal import Line

DEADLINE_S = 60.0
PROFD = [sys.executable, "-m", "profd"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Supervised:
    """A running `profd daemon`; what it says is kept in ``lines``."""

    def __init__(self, *, before: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """Start one, behind the words ``before``, and wait until it is ready."""
        self.lines: list[Line] = []
        self._news: queue.Queue[Line | None] = queue.Queue()
        self.process = subprocess.Popen(
            [*before, *PROFD, "daemon"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.wait("ready")

    def wait(self, event: str, *, pid: int = 0, run: str = "") -> Line:
        """Wait until it has said this, of this process or run where one is named; what it said before counts."""
        for line in self.lines:
            if _is_it(line, event, pid, run):
                return line
        deadline = time.monotonic() + DEADLINE_S
        while True:
            line = self._next(deadline, event)
            self.lines.append(line)
            if _is_it(line, event, pid, run):
                return line

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, and return its exit code once it is gone."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def _next(self, deadline: float, event: str) -> Line:
        try:
            line = self._news.get(timeout=max(deadline - time.monotonic(), 0.001))
        except queue.Empty:
            raise AssertionError(f"it did not say {event} in {DEADLINE_S:.0f} s, but {self.lines}") from None
        assert line is not None, f"it ended before it said {event}; it said {self.lines}"
        return line

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self._news.put(msgspec.json.decode(text, type=Line))
        self._news.put(None)


def _is_it(line: Line, event: str, pid: int, run: str) -> bool:
    return line.event == event and pid in (0, line.pid) and run in ("", line.run)


@contextlib.contextmanager
def supervised(*, before: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Iterator[Supervised]:
    """Run a supervisor; it is killed at the end unless it is gone."""
    one = Supervised(before=before, environment=environment)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait(DEADLINE_S)


class ShortJob:
    """A job that waits until it is told to train; ``steps`` of it take about 6 ms each."""

    def __init__(self, steps: int = 200, *, before: Sequence[str] = (), script: Path | None = None) -> None:
        words = [*before, sys.executable, str(script or PROGRAMS / "shortjob.py"), str(steps)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD}
        )
        wait_ready(self.process)
        self.pid = self.process.pid

    def train(self) -> int:
        """Let it train, and return its exit code."""
        self.process.communicate("go\n", timeout=DEADLINE_S)
        return self.process.returncode


@contextlib.contextmanager
def short_job(steps: int = 200, *, before: Sequence[str] = (), script: Path | None = None) -> Iterator[ShortJob]:
    """Start a job; it is killed at the end unless it is gone."""
    job = ShortJob(steps, before=before, script=script)
    try:
        yield job
    finally:
        job.process.kill()
        job.process.communicate()
