"""Handle the descriptors that the launcher has from its caller.

It closes all that only the script should have.

A pipe ends, and a lock is free, when the last descriptor is closed. stdin and stdout belong to the
script alone. stderr carries the launcher's own last lines: it stays open as long as the script's
main process has it open too.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_STDERR = 2


class InheritedStreams:
    """The descriptors that this process shares with the script, from the script's exec on."""

    def __init__(self, script_pid: int) -> None:
        """Close what the script has inherited beside the standard streams.

        That is all that passes through an exec.
        """
        self._script_pid = script_pid
        for fd in _open_descriptors(os.getpid()):
            with contextlib.suppress(OSError):
                if fd > _STDERR and os.get_inheritable(fd):
                    os.close(fd)
        found = os.fstat(_STDERR)
        self._stderr: _Stream | None = None
        # A file or terminal has no end to wait for.
        if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode):
            self._stderr = _stream(os.getpid(), _STDERR)

    def let_go_with_script(self) -> None:
        """Close a stderr that the script has closed: its reader waits for its end."""
        if self._stderr is not None and self._stderr not in self._of_script():
            null_fd = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null_fd, _STDERR, inheritable=False)
            os.close(null_fd)
            self._stderr = None

    def _of_script(self) -> Iterator[_Stream | None]:
        try:
            # Most scripts have it there; then no other descriptor is checked.
            yield _stream(self._script_pid, _STDERR)
            for fd in _open_descriptors(self._script_pid):
                yield _stream(self._script_pid, fd)
        except OSError:
            yield self._stderr  # it has ended, or become another user's: then nobody can tell


def occupy_standard_streams() -> None:
    """Open those of stdin, stdout and stderr that are closed.

    So no descriptor of profd gets such a number.

    The script finds them closed.
    """
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= _STDERR:
        pass
    os.close(fd)


class _Stream(NamedTuple):
    """A pipe or socket, by its device and inode; both ends of a pipe have the same."""

    device: int
    inode: int
    is_written: bool


def _stream(pid: int, fd: int) -> _Stream | None:
    """Return what a descriptor of a process is; None if it is closed."""
    link = Path(f"/proc/{pid}/fd/{fd}")
    try:
        found, is_written = link.stat(), bool(link.lstat().st_mode & stat.S_IWUSR)
    except FileNotFoundError:
        return None
    return _Stream(found.st_dev, found.st_ino, is_written)


def _open_descriptors(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
