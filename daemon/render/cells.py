"""Text in the cells of a terminal: how many it takes, cut and padded to a number of them.

An East Asian wide character takes two cells, a combining mark none. Escaping is the matter of ``visible``.
"""

from __future__ import annotations

import unicodedata

from profd.daemon.render.visible import visible

_NO_WIDTH = {"Mn", "Me"}
_ELLIPSIS = "…"


def width(text: str) -> int:
    """Return how many cells a text takes."""
    return len(text) if text.isascii() else sum(map(_width_of, text))


def cut(text: str, cells: int, *, keep_end: bool = False) -> str:
    """Return a text escaped and cut to at most so many cells, an ellipsis for what is missing.

    ``keep_end`` cuts at the beginning: of a path the end says most.
    """
    text = visible(text)
    if width(text) <= cells:
        return text
    if keep_end:
        return _ELLIPSIS + _longest(text[::-1], cells - 1)[::-1]
    return _longest(text, cells - 1) + _ELLIPSIS


def fit(text: str, cells: int, *, keep_end: bool = False) -> str:
    """Return a text escaped, cut and padded on the right to exactly so many cells."""
    shown = cut(text, cells, keep_end=keep_end)
    return shown + " " * (cells - width(shown))


def _longest(text: str, cells: int) -> str:
    """Return as much of the beginning of a text as so many cells hold."""
    taken = 0
    for position, character in enumerate(text):
        taken += _width_of(character)
        if taken > cells:
            return text[:position]
    return text


def _width_of(character: str) -> int:
    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
