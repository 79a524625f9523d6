"""The steps that a script prints itself.

Examples are ``iter 120: loss 2.31``, ``step 300/5000`` and ``Epoch: [2][120/938]``.

A number in brackets alone is none: scripts print samples so, too. It reads profd's pseudo-terminal
if the script was launched in one, or the end of the regular file that its standard output goes to.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from profd.daemon.processes import PROC
from profd.daemon.userfiles import UserFiles

_WORD = re.compile(
    r"(?i)(?<![a-z])(?:iter(?:ation)?|(?:global[ _])?step|batch|it|update)s?\b[\s:=#\[]{1,4}"
    r"(\d[\d,]{0,14})(?![\d.]|,\d|\s*(?:ms|it/s|s\b))"
)
# Repetitions have bounds: else a line made for it would take hours, and a number would be too long.
_BRACKET = re.compile(
    r"epoch:?\s{0,9}\[\d{1,9}\]\s{0,9}\[\s{0,9}(\d{1,9})/\d{1,9}\]", re.IGNORECASE
)
_BAR = re.compile(r"(?<!\d)(\d{1,15})/\d{1,15} \[\d[\d:]{0,20}<[^\]]{0,200}?(?:it/s|s/it)")
_LINE_BYTES = 4096


class StepLog:
    """The newest step in a script's output."""

    def __init__(self) -> None:
        self._step: int | None = None
        self.apart = 0
        """By how many steps two lines were apart at most."""
        self._rest = b""

    def take(self, data: bytes) -> int | None:
        """Read output; return the last step in it."""
        *lines, rest = re.split(rb"[\r\n]+", self._rest + data)
        self._rest = rest[-_LINE_BYTES:]
        step = None
        for line in (line[-_LINE_BYTES:].decode(errors="replace") for line in lines):
            if found := _BRACKET.search(line) or _WORD.search(line) or _BAR.search(line):
                step = int(found[1].replace(",", ""))
                self.apart = max(self.apart, step - self._step) if self._step is not None else 0
                self._step = step
        return step


class OutputFile:
    """The regular file that the standard output of a process goes to.

    It is opened as the user of the process.
    """

    def __init__(self, pid: int, files: UserFiles) -> None:
        self._fd, self._read = -1, 0
        with contextlib.suppress(OSError):
            link = PROC / str(pid) / "fd" / "1"
            if stat.S_ISREG(link.stat().st_mode):
                opened = files.open(str(link.readlink()))
                self._fd = -1 if opened is None else opened
            self._read = os.fstat(self._fd).st_size

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def new(self) -> bytes:
        """Return what was written since the last call; the end of it, if that is much."""
        with contextlib.suppress(OSError):
            size = os.fstat(self._fd).st_size
            begin = max(min(self._read, size), size - _LINE_BYTES)
            self._read = size
            return os.pread(self._fd, size - begin, begin)
        return b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)
