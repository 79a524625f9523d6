"""What profd forks and never execs: how such a process is called, and what it lets go of."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Container, Sequence
from pathlib import Path

HELPER = "run-helper"
"""The name of such a process, and the first word of its command line.

It is not profd's own name: whoever kills all that is called profd wants to be rid of profd, not of
the terminal that the script writes to.
"""

# fields of /proc/PID/stat that follow the name and come before the address of the command line
_ARGUMENTS_AT = 45


def rename(comm: bytes, words: Sequence[bytes]) -> None:
    """Give this process another name and, as far as there is room, another command line."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        Path("/proc/self/comm").write_bytes(comm)
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[_ARGUMENTS_AT]), int(fields[_ARGUMENTS_AT + 1])
        if 0 < start < end:
            ctypes.memmove(
                start,
                (b"\0".join(words) + b"\0").ljust(end - start, b"\0")[: end - start - 1],
                end - start - 1,
            )


def become_helper(work: str) -> None:
    """Name this process after its work."""
    rename(HELPER.encode(), [HELPER.encode(), work.encode()])


def is_helper(words: Sequence[str]) -> bool:
    """Say whether a command line is that of such a process."""
    return HELPER in (*words[:1], *words[-1:])


def let_go_of_all_but(kept: Container[int]) -> None:
    """Close what this forked process inherited.

    A pipe of the script's would otherwise not end with the script.
    """
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
