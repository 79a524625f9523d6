"""Programs that are run for an answer, bounded in time.

A program may hang in the kernel, which no signal ends. So one that is late is killed, but not
waited for, and is not started again for the same purpose until it has ended.
"""

from __future__ import annotations

import subprocess
from collections.abc import Hashable, Mapping, Sequence
from subprocess import DEVNULL, PIPE

_hanging: dict[Hashable, subprocess.Popen[bytes]] = {}
"""The programs that were given up, by their purposes, until they have ended."""


class ProgramLate(Exception):
    """A program did not answer in time, or is not asked because of that.

    ``said`` is what it had written to stdout by then.
    """

    def __init__(self, why: str, said: bytes = b"") -> None:
        super().__init__(why)
        self.said = said


def answer_of(
    words: Sequence[str], environment: Mapping[str, str], timeout_s: float, purpose: Hashable
) -> tuple[int, bytes, bytes]:
    """Return a program's exit code, stdout and stderr; raises ProgramLate, and OSError."""
    if (before := _hanging.get(purpose)) is not None and before.poll() is None:
        raise ProgramLate("still waits for an answer of the kernel's to an earlier look")
    _hanging.pop(purpose, None)
    process = subprocess.Popen(words, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        answer, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as late:
        process.kill()
        _hanging[purpose] = process
        raise ProgramLate(f"did not answer within {timeout_s:.0f} s", late.output or b"") from None
    return process.returncode, answer, said
