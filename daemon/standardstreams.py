"""The streams that a program of profd prints to.

No state of theirs raises an exception, or changes an exit code. A disk may be full, a reader may
have left, a terminal may be gone. Python itself would end with a traceback, or with code 120 in
place of its own.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class StandardStream(io.FileIO):
    """Stdout or stderr; after the first write that fails, all later output is counted as lost."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w", closefd=False)
        self.failure: OSError | None = None
        self.lost_bytes = 0

    def write(self, data: ReadableBuffer, /) -> int:
        while self.failure is None:
            try:
                written = super().write(data)
            except OSError as error:
                self.failure = error
            else:
                if written is not None:
                    return written
                self._wait_for_room()
        size = memoryview(data).nbytes
        self.lost_bytes += size
        return size

    def _wait_for_room(self) -> None:
        """Wait for the reader: another program that shares the stream has made it nonblocking."""
        poller = select.poll()
        poller.register(self, select.POLLOUT)
        poller.poll()


def open_streams() -> StandardStream:
    """Replace Python's stdout and stderr by streams that never raise, and return stdout's.

    A closed descriptor is replaced by one that takes no writes, so that no file of profd gets its
    number. Programs that profd starts find it closed.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # it gets the lowest free number, which is this one
    stdout = StandardStream(1)
    sys.stdout = _text(stdout)
    open_stderr()
    return stdout


def open_stderr() -> None:
    """Replace Python's own stderr, which has to be open, by a stream that never raises."""
    sys.stderr = _text(StandardStream(2))


def _text(stream: StandardStream) -> io.TextIOWrapper:
    encoding = sys.__stderr__.encoding if sys.__stderr__ else "utf-8"
    is_by_line = stream.fileno() == 2 or stream.isatty()
    # If the terminal's encoding lacks a character, a `?` will do: this is no reason to fail.
    return io.TextIOWrapper(
        io.BufferedWriter(stream), encoding, "replace", line_buffering=is_by_line
    )
