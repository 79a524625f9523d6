"""A terminal's screen as plain data: lines of runs of text, each in one ink."""

from __future__ import annotations

import msgspec


class Ink(msgspec.Struct, frozen=True):
    """How a run of text looks.

    Colors are ``default``, one of the sixteen names of ECMA-48 (``red``, ``bright_red``), or ``#rrggbb``.
    """

    color: str = "default"
    background: str = "default"
    bold: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False
    reverse: bool = False


class InkedText(msgspec.Struct, frozen=True):
    """Text in one ink."""

    text: str
    ink: Ink


Line = tuple[InkedText, ...]


class Picture(msgspec.Struct, frozen=True):
    """What a terminal shows: what has scrolled out of it, then its screen.

    ``cursor`` is (column, index into ``lines``), None where it is hidden. ``is_cut`` says that earlier output was left
    out.
    """

    lines: tuple[Line, ...]
    cursor: tuple[int, int] | None
    is_cut: bool
