"""Give a script the keys that are pressed on the real terminal, or that the dashboard passes on.

The launcher reads the keys itself: while it is stopped, they are the shell's. A dashboard has no
descriptor of the script's terminal, which would keep it open without reading it: it sends packets
with keys, with a size, or with a signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading

from profd.daemon.launch.channel import CHUNK_BYTES, packet_pair
from profd.daemon.launch.terminal import PseudoTerminal, window_size

_KEY_TIMEOUT_S = 1.0
_SIZE = struct.Struct("=HH")
_KEYS, _RESIZED, _SIGNAL = b"k", b"s", b"i"
_INTERRUPT = b"\x03"  # Ctrl-C


class Keyboard(threading.Thread):
    """Gives a script the keys that are pressed on the real terminal, until ``end``."""

    def __init__(self, keys_fd: int, terminal: PseudoTerminal) -> None:
        super().__init__(name="keyboard", daemon=True)
        self._keys_fd: int | None = keys_fd
        self._terminal, self._master_fd = terminal, terminal.master_fd
        self._wake_fd, self._waker_fd = os.pipe()
        self._typed = b""
        self.has_interrupted = False
        """Whether Ctrl-C was among the keys."""

    def run(self) -> None:
        while True:
            poller = select.poll()
            poller.register(self._wake_fd, select.POLLIN)
            if self._typed:
                poller.register(self._master_fd, select.POLLOUT)
            elif self._keys_fd is not None:
                poller.register(self._keys_fd, select.POLLIN)
            if self._wake_fd in dict(poller.poll()):
                return
            if self._typed:  # read no more keys before the script has taken these
                try:
                    self._typed = self._typed[os.write(self._master_fd, self._typed) :]
                except BlockingIOError:
                    pass
                except OSError:
                    self._typed = b""
            elif self._keys_fd is not None:
                data = b""
                with contextlib.suppress(OSError):
                    data = os.read(self._keys_fd, CHUNK_BYTES)
                if data:
                    self._take(data)
                else:
                    self._keys_fd = None  # the terminal is gone

    def _take(self, data: bytes) -> None:
        self._typed = data
        self.has_interrupted = self.has_interrupted or _INTERRUPT in data

    def end(self) -> None:
        """Stop touching the real terminal: once this returns, its keys belong to someone else."""
        os.write(self._waker_fd, b"\0")
        # The thread may wait for a key that a shell has taken meanwhile; then only that key is
        # lost.
        self.join(_KEY_TIMEOUT_S)
        if not self.is_alive():
            for fd in (self._wake_fd, self._waker_fd):
                os.close(fd)


class DashboardKeyboard(Keyboard):
    """Gives a script what its dashboard sends: keys, the size of its pane, and signals."""

    def __init__(self, terminal: PseudoTerminal) -> None:
        self._ours, theirs = packet_pair()
        # A terminal takes as many keys unread. profd refuses more, and says so.
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        theirs.setblocking(False)
        super().__init__(self._ours.fileno(), terminal)
        self.dashboards_fd = theirs.detach()

    def _take(self, data: bytes) -> None:
        if data[:1] == _KEYS:
            super()._take(data[1:])
        elif data[:1] == _SIGNAL and len(data) == 2:
            self._terminal.send(data[1])
        elif len(data) == 1 + _SIZE.size:
            self._terminal.resize(window_size(*_SIZE.unpack(data[1:])))

    def end(self) -> None:
        super().end()
        self._ours.close()


def keys_packet(keys: bytes) -> bytes:
    """Return the packet by which a dashboard sends keys."""
    return _KEYS + keys


def size_packet(columns: int, lines: int) -> bytes:
    """Return the packet by which a dashboard sends the size of its pane."""
    return _RESIZED + _SIZE.pack(columns, lines)


def signal_packet(number: int) -> bytes:
    """Return the packet by which a dashboard signals the group that the terminal's keys reach."""
    return _SIGNAL + bytes([number])
