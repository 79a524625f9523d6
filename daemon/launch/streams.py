"""Handle the descriptors that the launcher has from its caller.

It closes all that only the script should have.

A pipe ends, and a lock is free, when the last descriptor is closed. stdin and stdout belong to the
script alone. stderr carries the launcher's own last lines: it stays open as long as the script's
main process has it open too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterator
from pathlib import Path

from profd.daemon.forks import STDERR, callers_descriptors, open_descriptors
from profd.daemon.launch.channel import is_ready

_Stream = tuple[int, int, int]
"""An end of a pipe or socket: its device, its inode, and not 0 if it is written to."""


class Gate:
    """What a script's first line waits for: that no process of profd has a file that is its own.

    All that this process forks from now on hold the gate shut until they let go of what they
    inherited, and so does this process.
    """

    def __init__(self) -> None:
        """Shut the gate; raises OSError."""
        self._awaited_fd, self._held_fd = os.pipe()

    def wait(self) -> None:
        """Wait in the script's process; a process that is stopped is not waited for long."""
        os.close(self._held_fd)
        is_ready(self._awaited_fd, patience_ms=10_000)

    def open(self, kept: Container[int]) -> None:
        """Close what this process has from its caller, except ``kept``, and the gate."""
        for fd in callers_descriptors():
            if fd not in kept:
                _let_go_of(fd)
        os.close(self._awaited_fd)
        os.close(self._held_fd)


class SharedStderr:
    """The stderr that this process shares with the script."""

    def __init__(self, script_pid: int) -> None:
        self._script_pid = script_pid
        mode = os.fstat(STDERR).st_mode
        # A file or terminal has no end to wait for.
        has_end = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        self._stderr = _stream(os.getpid(), STDERR) if has_end else None

    def let_go_with_script(self) -> None:
        """Close a stderr that the script has closed: its reader waits for its end."""
        if self._stderr is not None and self._stderr not in self._of_script():
            _let_go_of(STDERR)
            self._stderr = None

    def _of_script(self) -> Iterator[_Stream | None]:
        try:
            # Most scripts have it there; then no other descriptor is checked.
            yield _stream(self._script_pid, STDERR)
            for fd in open_descriptors(self._script_pid):
                yield _stream(self._script_pid, fd)
        except OSError:
            yield self._stderr  # it has ended, or become another user's: then nobody can tell


def _let_go_of(fd: int) -> None:
    """Close a descriptor; nothing else gets the number of stdin, stdout or stderr."""
    if fd <= STDERR:
        fd, standard_fd = os.open(os.devnull, os.O_RDWR), fd
        os.dup2(fd, standard_fd, inheritable=False)
    os.close(fd)


def _stream(pid: int, fd: int) -> _Stream | None:
    """Return which end of which pipe or socket a descriptor is; None if it is closed."""
    link = Path(f"/proc/{pid}/fd/{fd}")
    try:
        found, is_written = link.stat(), link.lstat().st_mode & stat.S_IWUSR
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, is_written
