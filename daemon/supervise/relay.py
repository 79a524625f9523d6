"""Copies between a script's pseudo-terminal and the real one, in a thread of its own.

Whatever happens elsewhere, the pseudo-terminal is read: a script whose terminal no one reads stands still. What it
wrote goes to ``keep``, and to the real terminal only while it is shown. Knows nothing of who else uses either.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from profd.daemon.supervise.link import CHUNK_BYTES

_IDLE_MS = 50
# What a script leaves unread at its end is far less; a process of its own that writes on and on is left behind.
_DRAIN_BYTES = 1 << 20


class Relay(threading.Thread):
    """Reads a pseudo-terminal until ``finish``."""

    def __init__(self, master_fd: int, keep: Callable[[bytes], None]) -> None:
        """Take the master of the pseudo-terminal, non-blocking, and who is given what is read; who may not block."""
        super().__init__(name="relay", daemon=True)
        self._master_fd = master_fd
        self._keep = keep
        self._wake_fd, self._waker_fd = os.pipe()
        self._lock = threading.Lock()
        self._keys_fd: int | None = None
        self._screen_fd: int | None = None
        self._typed = b""
        self._left_bytes: int | None = None

    def show(self, keys_fd: int, screen_fd: int) -> None:
        """Give the script the keys read from one descriptor, and write what it writes to the other, from now on."""
        self._set_shown(keys_fd, screen_fd)

    def hide(self) -> None:
        """Touch the real terminal no more: when this returns, it is someone else's."""
        self._set_shown(None, None)

    def finish(self) -> None:
        """Copy what the ended script has left unread, then end."""
        self._left_bytes = _DRAIN_BYTES
        os.write(self._waker_fd, b"\0")
        self.join()

    def run(self) -> None:
        """Copy until there is nothing left."""
        while self._copy_once():
            pass

    def _copy_once(self) -> bool:
        """Wait for something to copy, and copy it; False once the script has ended and all is copied."""
        is_ending = self._left_bytes is not None
        if is_ending:
            self._keys_fd, self._typed = None, b""
        ready = dict(self._poller().poll(_IDLE_MS if is_ending else None))
        if self._wake_fd in ready:
            os.read(self._wake_fd, 1)
            return True
        with self._lock:
            if self._keys_fd is not None and self._keys_fd in ready:
                self._read_keys(self._keys_fd)
            events = ready.get(self._master_fd, 0)
            if events & select.POLLOUT:
                self._type()
            return self._read_script() if events & ~select.POLLOUT else not is_ending

    def _set_shown(self, keys_fd: int | None, screen_fd: int | None) -> None:
        with self._lock:
            self._keys_fd, self._screen_fd = keys_fd, screen_fd
        os.write(self._waker_fd, b"\0")

    def _poller(self) -> select.poll:
        """Return what to wait for now: no more keys while the script has not taken those before."""
        poller = select.poll()
        poller.register(self._wake_fd, select.POLLIN)
        poller.register(self._master_fd, select.POLLIN | (select.POLLOUT if self._typed else 0))
        if self._keys_fd is not None and not self._typed:
            poller.register(self._keys_fd, select.POLLIN)
        return poller

    def _read_script(self) -> bool:
        """Copy a part of what the script wrote; False where there will be no more."""
        try:
            data = os.read(self._master_fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False  # how a pseudo-terminal says that no one has its other end open
        self._keep(data)
        if self._screen_fd is not None:
            self._write_screen(self._screen_fd, data)
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
        return self._left_bytes is None or self._left_bytes > 0

    def _write_screen(self, screen_fd: int, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(screen_fd, data) :]
            except BlockingIOError:
                poller = select.poll()
                poller.register(screen_fd, select.POLLOUT)
                poller.poll()
            except OSError:
                self._screen_fd = None  # the terminal is gone; the script is still to be read
                return

    def _read_keys(self, keys_fd: int) -> None:
        try:
            self._typed = os.read(keys_fd, CHUNK_BYTES)
        except OSError:
            self._typed = b""
        if not self._typed:
            self._keys_fd = None

    def _type(self) -> None:
        try:
            self._typed = self._typed[os.write(self._master_fd, self._typed) :]
        except BlockingIOError:
            pass
        except OSError:
            self._typed = b""
