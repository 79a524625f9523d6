"""The process that looks for findings where a run file has none: an older one, or one whose recorder was killed.

Looking takes seconds in a run of a day, and holds Python's lock meanwhile: nobody waits for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.store.records import FindingsTaken

_MOST_STARTS = 3
_PART_BYTES = 1 << 16


class Analysis:
    """The analyst of one run file: started with the first ``poll``, again where it died, and ended by ``close``."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._spent_before_s = 0.0
        self._spent_s = 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether the process has died too often."""
        return self._process is None and self._starts == _MOST_STARTS

    def poll(self) -> FindingsTaken | None:
        """Return what it has found; None where nothing is new."""
        process = self._process or self._started()
        if process is None:
            return None
        assert process.stdout is not None
        while b"\n" not in self._said and select.select([process.stdout], [], [], 0)[0]:
            part = os.read(process.stdout.fileno(), _PART_BYTES)
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
        """Return the CPU time that the process has taken, those that died before it included."""
        stat = processes.read_stat(self._process.pid) if self._process is not None else None
        if stat is not None:
            self._spent_s = self._spent_before_s + stat.cpu_ticks / processes.CLOCK_TICKS
        return self._spent_s

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._spent_before_s = self.spent_s()
        process, self._process, self._said = self._process, None, b""
        process.kill()
        with contextlib.suppress(OSError):
            process.communicate()

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
