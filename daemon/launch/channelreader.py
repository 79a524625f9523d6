"""The session's end of the channel from a launched script.

It is a module of its own because the launcher, which waits for days, needs no event loop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec

from profd.daemon.launch.channel import LARGEST_BYTES, ScriptExited, decode


class ScriptChannelReader:
    """Reads the channel and passes on the script's output and how the script ended."""

    def __init__(
        self,
        channel_fd: int | None,
        take_output: Callable[[bytes], None],
        take_status: Callable[[int], None],
    ) -> None:
        """Start reading in the running loop; without a descriptor there is nothing to read."""
        self._loop = asyncio.get_running_loop()
        self._take_output, self._take_status = take_output, take_status
        self._socket: socket.socket | None = None
        if channel_fd is not None:
            self._socket = socket.socket(fileno=channel_fd)
            # The descriptor came through an exec, and would pass through the next one: a py-spy
            # that outlives the session would hold it.
            self._socket.set_inheritable(False)
            self._socket.setblocking(False)
            self._loop.add_reader(channel_fd, self._read)

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(LARGEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            message = decode(data)
        except msgspec.DecodeError:
            # profd was updated under its launcher: this message is lost, but the session goes on
            return
        if isinstance(message, ScriptExited):
            self._take_status(message.status)
            return
        if message.lost_bytes:
            self._take_output(
                f"\r\n[{message.lost_bytes} bytes of output were not kept]\r\n".encode()
            )
        if message.data:
            self._take_output(message.data)
