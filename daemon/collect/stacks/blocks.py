"""The function around a line of source, cut out by its indentation: what is parsed to tell what a line may call.

Pure, and a guess: to parse a whole file takes tens of milliseconds and megabytes, and who asks wants one line. A text
with lines that stand further left than the function they are in, such as those of a string, is cut in two; it then
parses as nothing at all, or as something without the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MOST_LINES = 1000
_FUNCTION = re.compile(r"(async\s+)?def\b")
# What stands alone at the left and neither begins a statement nor ends one that is longer.
_NO_STATEMENT = ("#", ")", "]", "}")
_INDENTED = "if 1:\n"


class Block(NamedTuple):
    """A text that can be parsed; ``first_line`` is the number, in the file, of its first line."""

    text: str
    first_line: int


def block_around(lines: Sequence[str], line: int) -> Block | None:
    """Return the function that holds a line, with its decorators.

    Outside of functions it is the file, unless that is long. None where nobody can tell.
    """
    if not 0 < line <= len(lines):
        return None
    start = _head_above(lines, line - 1)
    if start is None:
        return Block("\n".join(lines), 1) if len(lines) <= MOST_LINES else None
    end = _end_below(lines, start)
    decorated = _first_decorator(lines, start)
    if decorated is None and start == line - 1:
        return None
    start = start if decorated is None else decorated
    if end - start > MOST_LINES:
        return None
    text = "\n".join(lines[start:end])
    return Block(_INDENTED + text, start) if _indent(lines[start]) else Block(text, start + 1)


def _head_above(lines: Sequence[str], index: int) -> int | None:
    """Return the index of the head of the function that holds a line, its own where it is one; None outside of any."""
    if _FUNCTION.match(lines[index].lstrip()):
        return index
    left = _indent(lines[index])
    for above in range(index - 1, -1, -1):
        text = lines[above].lstrip()
        indent = _indent(lines[above])
        if text and indent < left and not text.startswith(_NO_STATEMENT):
            if _FUNCTION.match(text):
                return above
            left = indent
    return None


def _end_below(lines: Sequence[str], start: int) -> int:
    """Return the index of the first line after a function."""
    left = _indent(lines[start])
    for below in range(start + 1, len(lines)):
        text = lines[below].lstrip()
        if text and _indent(lines[below]) <= left and not text.startswith(_NO_STATEMENT):
            return below
    return len(lines)


def _first_decorator(lines: Sequence[str], start: int) -> int | None:
    """Return the index of a function's first decorator, of its head where it has none; None where it may have one."""
    left = _indent(lines[start])
    for above in range(start - 1, -1, -1):
        text = lines[above].lstrip()
        if text.startswith("#"):
            continue
        if _indent(lines[above]) != left or not text.startswith(("@", *_NO_STATEMENT)):
            break
        if not text.startswith("@"):
            return None
        start = above
    return start


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
