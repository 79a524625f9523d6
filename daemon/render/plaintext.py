"""Text in a terminal: widths, tables, control characters escaped, titles of processes.

An East Asian wide character takes two cells, a combining mark none: as Rich counts, which draws the
dashboard.

The profiled program chooses function names, paths, source lines and command lines. Escaping for
HTML keeps them from running; this keeps them from lying.
"""

from __future__ import annotations

import json
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import click
from rich.cells import cell_len, set_cell_size

from profd.daemon import naming
from profd.daemon.store.rows import ProcessRow

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories without a glyph: controls, marks of direction, surrogates, line separators."""


def visible(text: str) -> str:
    r"""Return ``text`` with invisible characters as escapes: ``\n``, ``\x1b``, ``\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    hidden = {character for character in set(text) if unicodedata.category(character) in HIDDEN}
    return "".join(
        one.encode("unicode_escape").decode("ascii") if one in hidden else one for one in text
    )


def visible_json(text: str) -> str:
    """Return JSON with each invisible character but the ends of lines as an escape of JSON's."""
    if text.isascii() and "\x7f" not in text:  # of these JSON itself leaves none but this one
        return text
    return "".join(
        json.dumps(one)[1:-1] if one != "\n" and unicodedata.category(one) in HIDDEN else one
        for one in text
    )


WIDTH = 80
"""The cells of a line of text unless a terminal has more, or fewer."""
ELLIPSIS = "…"
width = cell_len
"""Return how many cells a text takes."""


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
    """Return a text escaped in exactly so many cells, cut or filled with blanks."""
    text = cut(text, cells, keep_end=keep_end)
    blanks = " " * (cells - cell_len(text))
    return blanks + text if right else text + blanks


class Paragraph(NamedTuple):
    """A text of any length, with what stands before its first line; the others are indented."""

    text: str
    lead: str = ""

    def broken(self, cells: int) -> Iterator[str]:
        """Yield its lines, escaped and broken at blanks, or within a word longer than a line."""
        indent = " " * max(len(self.lead), 2)
        yield from textwrap.wrap(
            visible(self.text),
            cells,
            initial_indent=self.lead,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )


TextLine = str | Paragraph
"""What a text is made of: rows of tables, which are cut, and paragraphs, which are broken."""


def joined(lines: Iterable[TextLine], cells: int) -> str:
    """Return lines as one text, none wider than so many cells. No newline at the end."""
    found: list[str] = []
    for line in lines:
        found += line.broken(cells) if isinstance(line, Paragraph) else [line.rstrip(" ")]
    return "\n".join(cut(line, cells) for line in found)


BAR_CELLS = 8
"""How long a bar beside a share is in a table, in cells."""


def bar(share: float, cells: int = BAR_CELLS) -> str:
    """Return a share of 0 to 1 as a bar that takes all of so many cells at 1, in eighths."""
    full, rest = divmod(min(max(round(share * cells * 8), 0), cells * 8), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


def process_title(row: ProcessRow, host: str | None = None) -> str:
    """Return a process's title: ``main``, ``rank 0``, ``worker 1``, ``helper``, and its host."""
    title = naming.process_title(row.role, row.ordinal, row.rank)
    return title if host is None else f"{title} {visible(host)}"


GAP = "  "


def aligned(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    paths: Sequence[str] = (),
    cells: int | None = None,
    has_rule: bool = False,
) -> str:
    """Return a table with a line of heads; the columns named in ``right`` are aligned to the right.

    What is invisible in a cell, or would steer the terminal, is spelled out. If the table would
    take more than ``cells``, its last column is cut, then the widest ones, but none that ``right``
    or ``whole`` name, and those that ``paths`` name at their beginning. ``has_rule`` asks for
    dashes below the heads; without them, a column without any text in its cells is left out.
    """
    columns = list(zip(heads, *(map(visible, row) for row in rows), strict=True))
    columns = [column for column in columns if has_rule or any(column[1:]) or not column[1:]]
    rooms = [max(map(width, column)) for column in columns]
    if cells is not None:
        _narrow(
            rooms, [at for at, one in enumerate(columns) if one[0] not in (*right, *whole)], cells
        )
    shown = []
    for (head, *texts), room in zip(columns, rooms, strict=True):
        rule = ["-" * room] if has_rule else []
        shown.append(
            [
                fit(text, room, right=head in right, keep_end=head in paths)
                for text in (head, *rule, *texts)
            ]
        )
    return "\n".join(GAP.join(line).rstrip() for line in zip(*shown, strict=True))


def _narrow(rooms: list[int], flexible: Sequence[int], cells: int) -> None:
    """Take room from the columns that are flexible until a table takes no more than ``cells``."""
    taken = sum(rooms) + len(GAP) * (len(rooms) - 1)
    for _ in range(taken - cells if flexible else 0):
        widest = max(flexible, key=rooms.__getitem__)
        # The last column of a table is cut to so many cells before others are.
        at = flexible[-1] if rooms[flexible[-1]] > 16 else widest
        rooms[at] -= rooms[at] > 1


def rows_of(table: str) -> Iterator[str]:
    """Yield the lines of a table within a section, indented."""
    yield from (f"  {line}" for line in table.splitlines())


def titled(title: str, table: str) -> str:
    """Return a table below its title."""
    return f"{click.style(title, bold=True)}\n{table}"
