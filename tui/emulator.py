"""An emulator: turns the bytes that the script wrote into a picture of its screen.

It needs no terminal. The bytes are hostile: whatever pyte cannot interpret is skipped, and the
result is only printable text.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections import deque
from operator import itemgetter

import pyte
from rich.style import Style

from profd.daemon.render.plaintext import HIDDEN
from profd.tui.terminal import Line, Picture

SCROLLED_LINES = 1000
# What pyte raises on sequences with too many numbers, or with numbers that no terminal knows.
_FAILURES = (TypeError, ValueError, LookupError, AttributeError, NameError)
# Sequences of xterm's that pyte takes for others with the same last letter: one that sets keys
# would underline.
_EXTENSIONS = re.compile(rb"\x1b\[[<=>][0-9;]*[@-~]")
_MARKS = frozenset({"Mn", "Me"})
_PLAIN = Style()
_LOOKS = ("bold", "italic", "underline", "strike", "reverse")
_NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
# pyte calls yellow by its name on the first color terminals, and misspells one background.
_COLORS = {
    **{name: name.replace("brown", "yellow") for name in _NAMES},
    **{f"bright{name}": f"bright_{name.replace('brown', 'yellow')}" for name in _NAMES},
    "bfightmagenta": "bright_magenta",
}


class Emulator:
    """A screen of ``columns`` by ``lines``, and what scrolled out of it."""

    def __init__(self, columns: int, lines: int) -> None:
        self._screen = _ScrollingScreen(max(columns, 1), max(lines, 1))
        self._stream = _TolerantStream(self._screen)
        self._drawn: dict[int, Line] = {}

    def feed(self, data: bytes) -> None:
        self._stream.feed(_EXTENSIONS.sub(b"", data))

    def picture(self) -> Picture:
        """Return what the screen shows now; lines that did not change are not drawn anew."""
        screen = self._screen
        for y in range(screen.lines):
            if y in screen.dirty or y not in self._drawn:
                self._drawn[y] = screen.line(y)
        screen.dirty.clear()
        used = max([screen.cursor.y, *(y for y, line in self._drawn.items() if line)]) + 1
        lines = (*screen.scrolled, *(self._drawn[y] for y in range(used)))
        cursor = (
            None
            if screen.cursor.hidden
            else (screen.cursor.x, len(screen.scrolled) + screen.cursor.y)
        )
        return Picture(lines, cursor)


class _ScrollingScreen(pyte.Screen):
    """A screen that keeps the lines that scroll out of its top, drawn."""

    def __init__(self, columns: int, lines: int) -> None:
        self.scrolled: deque[Line] = deque(maxlen=SCROLLED_LINES)
        super().__init__(columns, lines)

    def index(self) -> None:
        """Move down; at the bottom of the whole screen, keep the line that leaves it."""
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.scrolled.append(self.line(0))
        super().index()

    def draw(self, data: str) -> None:
        """Write text at the cursor, without characters that have no picture.

        Otherwise pyte would drop everything after such a character.
        """
        super().draw(data if data.isascii() and data.isprintable() else _pictured(data))

    def line(self, y: int) -> Line:
        row = self.buffer[y]
        cells = [row[x] for x in range(max(row, default=-1) + 1)]
        groups = itertools.groupby(cells, key=itemgetter(slice(1, 8)))
        runs = [("".join(cell.data for cell in group), _style_of(look)) for look, group in groups]
        if runs and runs[-1][1] == _PLAIN:
            last, _ = runs.pop()
            runs += [(last.rstrip(), _PLAIN)] if last.rstrip() else []
        return tuple(runs)


class _TolerantStream(pyte.ByteStream):
    """A stream that skips the sequences that pyte fails on.

    The script may write any sequence.
    """

    def _send_to_parser(self, data: str) -> bool | None:
        try:
            return super()._send_to_parser(data)
        except _FAILURES:
            return True  # pyte has reset its parser before raising, and takes plain text again


def _pictured(data: str) -> str:
    """Return text without characters that have no picture.

    Excess marks on one letter are left out, too.
    """
    kept = []
    marks = 0
    for character in data:
        category = unicodedata.category(character)
        marks = marks + 1 if category in _MARKS else 0
        # Enough for any language; the cost of marks on one letter is quadratic in their number.
        if category not in HIDDEN and marks <= 4:
            kept.append(character)
    return "".join(kept)


@functools.lru_cache(maxsize=1024)
def _style_of(look: tuple[str, str, bool, bool, bool, bool, bool]) -> Style:
    marks = (name for name, is_set in zip(_LOOKS, look[2:], strict=True) if is_set)
    return Style(color=_color(look[0]), bgcolor=_color(look[1])) + Style.parse(" ".join(marks))


def _color(name: str) -> str | None:
    """Return rich's name of a color of pyte.

    None for the default and for an unknown one, such as 9999 of red.
    """
    is_hex = len(name) == 6 and all(digit in "0123456789abcdef" for digit in name)
    return _COLORS.get(name, f"#{name}" if is_hex else None)
