"""Real supervisors for integration tests: `profd daemon` with its journal read line by line, and
short jobs for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from profd.daemon.service.log import LogLine
from support.folders import PROGRAMS
from support.sessions import ready
from support.waiting import DEADLINE_S, until

PROFD = [sys.executable, "-m", "profd"]

REPORT_DEADLINES = 3


class Supervised:
    """A running `profd daemon`; what it says is kept in ``lines``."""

    def __init__(self, before: Sequence[str]) -> None:
        """Start one, behind the words ``before``, and wait until it is ready."""
        self.lines: list[LogLine] = []
        command = [*before, *PROFD, "daemon"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait("ready")

    def wait(self, event: str, *, pid: int = 0, run: str = "") -> LogLine:
        """Wait until it has said this, of this process or run where one is named.

        What it said before counts. Reports have the lowest priority, and take their time beside
        other work: the test has a timeout to match.
        """

        def look() -> LogLine | None:
            has_ended = not self._reader.is_alive()
            said = [
                line
                for line in self.lines
                if line.event == event and pid in (0, line.pid) and run in ("", line.run)
            ]
            assert said or not has_ended, f"it ended before it said {event}; it said {self.lines}"
            return said[0] if said else None

        deadlines = REPORT_DEADLINES if event == "reported" else 1
        return until(look, lambda: f"{event} among {self.lines}", deadlines)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, and return its exit code once it is gone."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.lines.append(msgspec.json.decode(text, type=LogLine))


@contextlib.contextmanager
def supervised(*before: str) -> Iterator[Supervised]:
    """Run a supervisor; it is killed at the end unless it is gone."""
    one = Supervised(before)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait(DEADLINE_S)


def home_name() -> str:
    """Return a word that no other test's jobs have in their command line."""
    return Path(os.environ["PROFD_HOME"]).name


class ShortJob:
    """A job that waits for the word to train."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def train(self) -> int:
        """Let it train, and return its exit code."""
        self._process.communicate("go\n", timeout=DEADLINE_S)
        return self._process.returncode


@contextlib.contextmanager
def short_job(steps: int, *before: str) -> Iterator[ShortJob]:
    """Start a job whose steps take about 6 ms each; it is killed at the end unless it is gone."""
    with ready(
        [*before, sys.executable, str(PROGRAMS / "shortjob.py"), str(steps), home_name()]
    ) as process:
        yield ShortJob(process)
