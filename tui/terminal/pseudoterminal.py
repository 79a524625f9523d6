"""The script's own terminal: the end of the pseudo-terminal that profd holds. Keys go in, its size is told.

What the script writes does not come out here: the session reads it, stores it, and the feed finds it in the run file.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios

_ESCAPES = {
    "enter": "\r",
    "tab": "\t",
    "escape": "\x1b",
    "backspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "insert": "\x1b[2~",
    "delete": "\x1b[3~",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "shift+tab": "\x1b[Z",
}
_SIZE = struct.Struct("4H")  # struct winsize: rows, columns, and their pixels, which nobody tells
_CHUNK_BYTES = 256


class Terminal:
    """The pseudo-terminal of a launched script; once the script is gone, nothing more is taken."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.is_open = True

    def write(self, data: bytes) -> bool:
        """Hand keys to the script; False where it does not take them: it is gone, or has stopped reading."""
        return all(self._write_chunk(data[at : at + _CHUNK_BYTES]) for at in range(0, len(data), _CHUNK_BYTES))

    def resize(self, columns: int, lines: int) -> None:
        """Tell the script how much room it has; it is sent SIGWINCH by the kernel where that changed."""
        if self.is_open and columns > 0 and lines > 0:
            try:
                fcntl.ioctl(self._fd, termios.TIOCSWINSZ, _SIZE.pack(lines, columns, 0, 0))
            except OSError:
                self.is_open = False

    def _write_chunk(self, chunk: bytes) -> bool:
        # The event loop calls this: a script that does not read must not hold the dashboard up.
        try:
            writable = self.is_open and select.select([], [self._fd], [], 0)[1]
            return bool(writable) and os.write(self._fd, chunk) == len(chunk)
        except (OSError, ValueError):
            self.is_open = False
            return False


def key_bytes(key: str, character: str | None) -> bytes:
    """Return what a terminal sends for a key, by the name and the character that Textual has for it."""
    if key in _ESCAPES:
        return _ESCAPES[key].encode()
    control, _, letter = key.partition("ctrl+")
    if not control and len(letter) == 1 and letter.isascii() and letter.isalpha():
        return bytes([ord(letter) & 0x1F])
    return character.encode(errors="replace") if character is not None else b""
