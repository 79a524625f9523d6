"""The process that looks for findings where a run file has none: an older one, or one whose recorder was killed.

Looking takes seconds in a run of a day, and holds Python's lock meanwhile: nobody waits for it.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.store.records import FindingsTaken

_PART_BYTES = 1 << 16


class Analysis:
    """The analyst of one run file: started with the first ``poll``, and ended by ``close``."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._spent_s = 0.0
        self.is_given_up = False
        """Whether the process could not be started, or has died."""

    def poll(self) -> FindingsTaken | None:
        """Return what it has found; None where nothing is new."""
        if self._process is None and not self.is_given_up:
            self._start()
        if self._process is None:
            return None
        assert self._process.stdout is not None
        while b"\n" not in self._said and select.select([self._process.stdout], [], [], 0)[0]:
            part = os.read(self._process.stdout.fileno(), _PART_BYTES)
            self._said += part
            if not part:
                self.close()
                return None
        line, ending, rest = self._said.partition(b"\n")
        if not ending:
            return None
        self._said = rest
        return msgspec.json.decode(line, type=FindingsTaken)

    def spent_s(self) -> float:
        """Return the CPU time that the process has taken."""
        stat = processes.read_stat(self._process.pid) if self._process is not None else None
        if stat is not None:
            self._spent_s = stat.cpu_ticks / processes.CLOCK_TICKS
        return self._spent_s

    def close(self) -> None:
        """End the process; it is not started again."""
        self.is_given_up = True
        if self._process is not None:
            self.spent_s()
            process, self._process = self._process, None
            process.kill()
            process.communicate()

    def _start(self) -> None:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        try:
            # In a session of its own: what the terminal sends is for the dashboard.
            self._process = subprocess.Popen(
                self._words, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True
            )
        except OSError:
            self.is_given_up = True
