"""The session's end of what comes from a launched script: its output and its exit status.

Both come from the launcher over a socket. When the launcher is gone, the session drains the script's pseudo-terminal
itself: a terminal that no one reads would stop the script.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import msgspec

from profd.daemon.supervise.link import LARGEST_BYTES, ScriptExited, ScriptWrote, decode

_PTY_READ_BYTES = 65536


class ScriptInlet:
    """Reads the link and, once the launcher is gone, the pseudo-terminal."""

    def __init__(
        self,
        link_fd: int | None,
        pty_fd: int | None,
        take_output: Callable[[bytes], None],
        take_status: Callable[[int], None],
    ) -> None:
        """Start reading in the running loop; without a link there is nothing to read."""
        self._loop = asyncio.get_running_loop()
        self._pty_fd = pty_fd
        self._take_output = take_output
        self._take_status = take_status
        self._socket: socket.socket | None = None
        # They came through exec, and would through the next one: a py-spy that outlives the session must not hold
        # the script's terminal open when no one reads it any more.
        for descriptor in (link_fd, pty_fd):
            if descriptor is not None:
                os.set_inheritable(descriptor, False)
        if link_fd is not None:
            self._socket = socket.socket(fileno=link_fd)
            self._socket.setblocking(False)
            self._loop.add_reader(link_fd, self._read_link)

    def close(self) -> None:
        """Stop reading."""
        self._drop_link()
        if self._pty_fd is not None:
            self._loop.remove_reader(self._pty_fd)

    def _read_link(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(LARGEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop_link()
            if self._pty_fd is not None:
                self._loop.add_reader(self._pty_fd, self._read_pty)
            return
        try:
            message = decode(data)
        except msgspec.DecodeError:
            return  # a launcher that profd was updated under: what it says is lost, not the session
        if isinstance(message, ScriptWrote):
            if message.lost_bytes:
                self._take_output(f"\r\n[{message.lost_bytes} bytes of output were not kept]\r\n".encode())
            self._take_output(message.data)
        elif isinstance(message, ScriptExited):
            self._take_status(message.status)

    def _read_pty(self) -> None:
        assert self._pty_fd is not None
        try:
            data = os.read(self._pty_fd, _PTY_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # how a pseudo-terminal says that no one has its other end open
        if data:
            self._take_output(data)
        else:
            self._loop.remove_reader(self._pty_fd)

    def _drop_link(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
