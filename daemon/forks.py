"""What profd forks and never execs: the name of such a process, and the files that it closes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Container, Sequence
from pathlib import Path

HELPER = "run-helper"
"""The name of such a process, and the first word of its command line.

It is not profd's own name: whoever kills every process called profd wants to be rid of profd, not
of the terminal that the script writes to.
"""

# the fields of /proc/PID/stat between the name and the address of the command line
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
    """Close the files that this forked process inherited, except ``kept``.

    Otherwise a pipe of the script would not end with the script.
    """
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
