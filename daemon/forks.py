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

STDERR = 2

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

    Otherwise a pipe of the script would not end with the script. The files of profd's caller come
    first: if one of profd's own is closed here, all of those are.
    """
    for fd in callers_descriptors() + open_descriptors(os.getpid()):
        if fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


def callers_descriptors() -> list[int]:
    """Return what this process has from its caller: all that it would pass on by an exec."""
    found = []
    for fd in open_descriptors(os.getpid()):
        with contextlib.suppress(OSError):  # that of the list itself
            if fd <= STDERR or os.get_inheritable(fd):
                found.append(fd)
    return found


def open_descriptors(pid: int) -> list[int]:
    """Return the numbers of a process's open files; raises OSError."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
