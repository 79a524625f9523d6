"""The process that looks for findings, as seen from here: it is asked, and looked after, and nobody waits for it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.tui.reading.questions import Answer, Question

_PROGRAM = "profd.tui.reading.examiner"
_MOST_STARTS = 3
_PART_BYTES = 1 << 16


def command(run_file: Path) -> list[str]:
    """Return the words that start the process which looks at a run."""
    return [sys.executable, "-m", _PROGRAM, str(run_file)]


class Examination:
    """The process of one run file: started with the first question, again where it has died, and ended by ``close``."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._spent_before_s = 0.0
        self._spent_s = 0.0

    def ask(self, question: Question) -> bool:
        """Ask something; False where there is nobody to ask any more."""
        while (process := self._process or self._started()) is not None:
            assert process.stdin is not None
            try:
                process.stdin.write(msgspec.json.encode(question) + b"\n")
                process.stdin.flush()
            except OSError:
                self._end()
            else:
                return True
        return False

    def answer(self) -> Answer | None:
        """Return the answer; None where it is not there yet, and where the process has died of the question."""
        if self._process is None:
            return None
        assert self._process.stdout is not None
        while select.select([self._process.stdout], [], [], 0)[0]:
            part = os.read(self._process.stdout.fileno(), _PART_BYTES)
            self._said += part
            if not part:
                self._end()
                return None
            line, ending, rest = self._said.partition(b"\n")
            if ending:
                self._said = rest
                return msgspec.json.decode(line, type=Answer)
        return None

    @property
    def is_there(self) -> bool:
        """Whether the process lives, as far as was seen."""
        return self._process is not None

    def spent_s(self) -> float:
        """Return the CPU time that the process has taken, those that died before it included."""
        stat = processes.read_stat(self._process.pid) if self._process is not None else None
        if stat is not None:
            self._spent_s = self._spent_before_s + stat.cpu_ticks / processes.CLOCK_TICKS
        return self._spent_s

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._end()

    def _started(self) -> subprocess.Popen[bytes] | None:
        """Start the process; None where that cannot be, or was done often enough."""
        if self._starts == _MOST_STARTS:
            return None
        self._starts += 1
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        with contextlib.suppress(OSError):
            # In a session of its own: what the terminal sends is for the dashboard.
            self._process = subprocess.Popen(
                self._words, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True
            )
        return self._process

    def _end(self) -> None:
        assert self._process is not None
        self._spent_before_s = self.spent_s()
        process, self._process, self._said = self._process, None, b""
        process.kill()
        with contextlib.suppress(OSError):  # what was written to nobody is lost
            process.communicate()
