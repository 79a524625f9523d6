"""Makes Textual's pictures small enough to keep, and their differences short; what is seen stays as it is.

Textual draws every run of equal style, often a single cell, by an element for its background and one for its text, all
on a few lines of the file, and has a sum over all of it in each name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

_TYPEFACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_NAME = re.compile(r"terminal-\d+-")
_CLIPS = re.compile(r'<clipPath id="line-\d+">.*?</clipPath>\s*', re.DOTALL)
_RECTANGLES = re.compile(r'(?:<rect fill="[^"]*" x=[^>]*shape-rendering="crispEdges"/>)+')
_RECTANGLE = re.compile(r'<rect fill="([^"]*)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"')
_TEXT = re.compile(
    r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)" clip-path="[^"]*">(.*?)</text>\s*',
    re.DOTALL,
)


class _Piece(NamedTuple):
    """A part of a row: ``look`` is its color or class."""

    look: str
    x: float
    y: float
    width: float
    text: str = ""


def compact(drawn: str) -> str:
    """Return a picture that looks the same: neighbors of one look as one, an element a line, names without sums.

    The typeface is the reader's own; the file fetches nothing.
    """
    named = _CLIPS.sub("", _NAME.sub("", _TYPEFACE.sub("", drawn)))
    return _joined_text(_RECTANGLES.sub(_joined_rectangles, named)).replace("&#160;", "\N{NO-BREAK SPACE}")


def _joined_rectangles(found: re.Match[str]) -> str:
    rows = _RECTANGLE.findall(found[0])
    height = rows[0][4]
    pieces = [_Piece(look, float(x), float(y), float(width)) for look, x, y, width, _ in rows]
    lines = [
        f'<rect fill="{piece.look}" x="{piece.x:g}" y="{piece.y:g}" width="{piece.width:g}" height="{height}"/>'
        for piece in _joined(pieces)
    ]
    return '<g shape-rendering="crispEdges">\n' + "\n".join(lines) + "\n</g>"


def _joined_text(drawn: str) -> str:
    found = list(_TEXT.finditer(drawn))
    pieces = [_Piece(look, float(x), float(y), float(width), text) for look, x, y, width, text in map(_groups, found)]
    lines = [
        f'<text class="{piece.look}" x="{piece.x:g}" y="{piece.y:g}"{_length(piece)}>{piece.text}</text>'
        for piece in _joined(pieces)
    ]
    return drawn[: found[0].start()] + "\n".join(lines) + "\n" + drawn[found[-1].end() :]


def _length(piece: _Piece) -> str:
    """Return the attribute that keeps the next character where it belongs, whatever the typeface."""
    return "" if len(piece.text) == 1 else f' textLength="{piece.width:g}"'


def _groups(found: re.Match[str]) -> tuple[str, ...]:
    return tuple(str(group) for group in found.groups())


def _joined(pieces: list[_Piece]) -> Iterator[_Piece]:
    """Yield the pieces, neighbors in a row that look the same as one."""
    rows = itertools.groupby(pieces, key=lambda piece: piece.y)
    for _, row in rows:
        last = next(row)
        for piece in row:
            if piece.look == last.look and abs(last.x + last.width - piece.x) < 0.1:
                last = last._replace(width=round(last.width + piece.width, 1), text=last.text + piece.text)
            else:
                yield last
                last = piece
        yield last
