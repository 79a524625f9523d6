"""Text in the cells of a terminal: how many it takes, cut and padded to a number of them.

An East Asian wide character takes two cells, a combining mark none: as Rich counts, which draws the dashboard.
"""

from __future__ import annotations

import textwrap

from rich.cells import cell_len, set_cell_size

from profd.daemon.render.visible import visible

ELLIPSIS = "…"


def width(text: str) -> int:
    """Return how many cells a text takes."""
    return cell_len(text)


def cut(text: str, cells: int, *, keep_end: bool = False) -> str:
    """Return a text escaped and cut to at most so many cells, an ellipsis for what is missing.

    ``keep_end`` cuts at the beginning: of a path the end says most.
    """
    text = visible(text)
    if cell_len(text) <= cells:
        return text
    if cells <= 0:
        return ""
    if keep_end:
        return ELLIPSIS + set_cell_size(text[::-1], cells - 1).rstrip()[::-1]
    return set_cell_size(text, cells - 1).rstrip() + ELLIPSIS


def fit(text: str, cells: int, *, right: bool = False, keep_end: bool = False) -> str:
    """Return a text escaped in exactly so many cells, cut or filled with blanks on the other side."""
    text = cut(text, cells, keep_end=keep_end)
    blanks = " " * (cells - cell_len(text))
    return blanks + text if right else text + blanks


def wrapped(text: str, columns: int, lead: str = "") -> list[str]:
    """Return a text escaped and broken into lines at its blanks; the lines after the first are indented below it."""
    indent = " " * max(len(lead), 2)
    return textwrap.wrap(visible(text), columns, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)
