"""The script's own output, read as it grows and played into a terminal of the size that there is to show it in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profd.daemon.store.reader import RunReader
from profd.tui.terminal.picture import Picture
from profd.tui.view import OutputView

# pyte takes about a quarter of a megabyte a second. So of what is there at first the end will do, and what a script
# pours out later is played a little at a time, or skipped where it pours faster than anyone reads.
MOST_BYTES = 64 << 10
STEP_BYTES = 8 << 10
_PLAIN = b"\x1b[0m"

if TYPE_CHECKING:
    from profd.tui.terminal.emulator import Emulator


class Playback:
    """The output of one run; nothing is read of it before it is shown."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._emulator: Emulator | None = None
        self._size = (0, 0)
        self._last_row = 0
        self._pending = b""
        self._is_cut = False

    def play(self, view: OutputView) -> Picture | None:
        """Take in what was written since; None where nothing was, or where it is not shown."""
        if not view.is_shown:
            return None
        size = (view.columns, view.lines)
        is_new = size != self._size
        if is_new or self._emulator is None:
            # Here and not above: a dashboard's first picture has no output in it.
            from profd.tui.terminal.emulator import Emulator

            self._emulator, self._size = Emulator(*size), size
            self._last_row, self._pending, self._is_cut = 0, b"", False
        self._read()
        if not self._pending and not is_new:
            return None
        step = MOST_BYTES if is_new else STEP_BYTES
        self._emulator.feed(self._pending[:step])
        self._pending = self._pending[step:]
        return self._emulator.picture(is_cut=self._is_cut)

    def _read(self) -> None:
        """Put what was written since the last call behind what waits to be played."""
        rows = self._reader.output(self._last_row)
        if not rows:
            return
        # The run file drops the oldest output of a long run: then the first rows of all are missing.
        self._is_cut = self._is_cut or rows[0].id > self._last_row + 1
        self._last_row = rows[-1].id
        self._pending += b"".join(row.data for row in rows)
        if len(self._pending) > MOST_BYTES:
            self._is_cut = True
            start = self._pending.find(b"\n", len(self._pending) - MOST_BYTES) + 1
            self._pending = _PLAIN + self._pending[max(start, len(self._pending) - MOST_BYTES) :]
