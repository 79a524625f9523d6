"""The steps that a script prints itself: ``iter 120: loss 2.31``, ``step 300/5000``, ``Epoch: [2][120/938]``.

A number in brackets alone is none: scripts print samples so, too. Reads profd's pseudo-terminal, where the script was
launched in one, or the end of the regular file that its standard output goes to.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from profd.daemon.processes import PROC
from profd.daemon.userfiles import UserFiles

_WORD = re.compile(
    r"(?<![a-z])(?:iter(?:ation)?|(?:global[ _])?step|batch|it|update)s?\b[\s:=#\[]{1,4}"
    r"(\d[\d,]{0,14})(?![\d.]|,\d|\s*(?:ms|it/s|s\b))",
    re.IGNORECASE,
)
_BRACKET = re.compile(r"epoch:?\s*\[\d+\]\s*\[\s*(\d+)/\d+\]", re.IGNORECASE)
_BAR = re.compile(r"(\d+)/\d+ \[\d[\d:]*<[^\]]*(?:it/s|s/it)")
_LINE_BYTES = 4096


def step_in(line: str) -> int | None:
    found = _BRACKET.search(line) or _WORD.search(line) or _BAR.search(line)
    return int(found[1].replace(",", "")) if found else None


class StepLog:
    """The newest step in a script's output."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.apart = 0
        """By how many steps two lines were apart at most."""
        self._rest = b""

    def take(self, data: bytes) -> bool:
        """Read output; say whether it has a step."""
        *lines, rest = re.split(rb"[\r\n]+", self._rest + data)
        self._rest = rest[-_LINE_BYTES:]
        steps = [step for line in lines if (step := step_in(line.decode(errors="replace"))) is not None]
        for step in steps:
            self.apart = max(self.apart, step - self.step) if self.step is not None else 0
            self.step = step
        return bool(steps)


class OutputFile:
    """The regular file that the standard output of a process goes to, opened as the user of the process."""

    def __init__(self, pid: int, files: UserFiles) -> None:
        self._fd: int | None = None
        self._read = 0
        with contextlib.suppress(OSError):
            link = PROC / str(pid) / "fd" / "1"
            if stat.S_ISREG(link.stat().st_mode):
                self._fd = files.open(str(link.readlink()))
            self._read = os.fstat(self._fd).st_size if self._fd is not None else 0

    def new(self) -> bytes:
        """Return what was written since the last call; the end of it, if that is much."""
        if self._fd is None:
            return b""
        try:
            size = os.fstat(self._fd).st_size
            begin = max(min(self._read, size), size - _LINE_BYTES)
            self._read = size
            return os.pread(self._fd, size - begin, begin) if size > begin else b""
        except OSError:
            self.close()
            return b""

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
