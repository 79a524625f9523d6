"""The script's own terminal: its screen as data, its growing output, and keys into it.

The script's output does not come out here: the session reads and stores it, and the feed finds it
in the run file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from rich.style import Style

from profd.daemon.launch.keyboard import keys_packet, signal_packet, size_packet
from profd.daemon.store.reader import RunReader
from profd.tui.view import OutputView

if TYPE_CHECKING:
    from profd.tui.emulator import Emulator


Line = tuple[tuple[str, Style], ...]


class Picture(msgspec.Struct, frozen=True):
    """What a terminal shows: the lines that have scrolled out of it, then its screen.

    ``cursor`` is (column, index into ``lines``), None if it is hidden.
    """

    lines: tuple[Line, ...]
    cursor: tuple[int, int] | None


# pyte takes about a quarter of a megabyte a second. So only the end of the initial output is
# played. Later output is played a little at a time, or skipped if it comes faster than anyone
# reads.
MOST_BYTES = 64 << 10
STEP_BYTES = 8 << 10
_RESET = b"\x1b[0m"


class Playback:
    """The output of one run; nothing is read of it before it is shown."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._emulator: Emulator | None = None
        self._size = (0, 0)
        self._last_row = 0
        self._pending = b""

    def play(self, view: OutputView) -> Picture | None:
        """Take in what was written since; None if nothing was, or if it is not shown."""
        if not view.is_shown:
            return None
        size = (view.columns, view.lines)
        is_new = size != self._size
        if is_new or self._emulator is None:
            # Imported here because a dashboard's first picture has no output in it.
            from profd.tui.emulator import Emulator

            self._emulator, self._size = Emulator(*size), size
            self._last_row, self._pending = 0, b""
        rows = self._reader.output(self._last_row)
        if rows:
            self._last_row = rows[-1].id
            self._pending += b"".join(row.data for row in rows)
            surplus = len(self._pending) - MOST_BYTES
            if surplus > 0:
                self._pending = (
                    _RESET + self._pending[max(self._pending.find(b"\n", surplus) + 1, surplus) :]
                )
        if not self._pending and not is_new:
            return None
        step = MOST_BYTES if is_new else STEP_BYTES
        self._emulator.feed(self._pending[:step])
        self._pending = self._pending[step:]
        return self._emulator.picture()


_ESCAPES = {"enter": "\r", "tab": "\t", "escape": "\x1b", "backspace": "\x7f"}
_CURSOR_KEYS = {
    "up": "A",
    "down": "B",
    "right": "C",
    "left": "D",
    "home": "H",
    "end": "F",
    "shift+tab": "Z",
}
_EDITING_KEYS = {"insert": "2~", "delete": "3~", "pageup": "5~", "pagedown": "6~"}
_ESCAPES |= {key: f"\x1b[{code}" for key, code in (_CURSOR_KEYS | _EDITING_KEYS).items()}
_CHUNK_BYTES = 256


class Terminal:
    """The way to the pseudo-terminal of a launched script.

    Once the launcher is gone, it takes nothing more.
    """

    def __init__(self, fd: int) -> None:
        """Write to the socket ``fd``, which does not block.

        The launcher reads its other end.
        """
        self._fd = fd
        self.is_open = True

    def write(self, data: bytes) -> bool:
        """Hand keys to the script.

        False if it does not take them: it is gone, or has stopped reading.
        """
        chunks = (data[at : at + _CHUNK_BYTES] for at in range(0, len(data), _CHUNK_BYTES))
        return all(self._send(keys_packet(chunk)) for chunk in chunks)

    def resize(self, columns: int, lines: int) -> None:
        """Give the script's terminal another size; if it changed, the kernel sends SIGWINCH."""
        self._send(size_packet(columns, lines))

    def signal(self, number: int) -> bool:
        """Signal the script as its terminal does, which signals its children, too.

        False if nobody takes it.
        """
        return self._send(signal_packet(number))

    def _send(self, packet: bytes) -> bool:
        if not self.is_open:
            return False
        try:
            return os.write(self._fd, packet) == len(packet)
        except BlockingIOError:
            return False
        except OSError:
            self.is_open = False
            return False


def key_bytes(key: str, character: str | None) -> bytes:
    if key in _ESCAPES:
        return _ESCAPES[key].encode()
    control, _, letter = key.partition("ctrl+")
    if not control and len(letter) == 1 and letter.isascii() and letter.isalpha():
        return bytes([ord(letter) & 0x1F])
    return character.encode(errors="replace") if character is not None else b""
