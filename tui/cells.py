"""Text made to fit the cells of a terminal: paths, names and runs of styled text, cut or wrapped.

Whatever comes from a run passes ``visible`` on its way here: no name may move the cursor, hide itself, or be markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from profd.daemon.render.plaintext import ELLIPSIS, cut, width


class Run(NamedTuple):
    """Text in one style."""

    text: str
    style: Style


def cells_of(runs: Iterable[Run]) -> int:
    return sum(width(run.text) for run in runs)


def cut_path(path: str, cells: int) -> str:
    """Return a path in at most ``cells`` cells: its first and its last part are what people know it by.

    ``torch/utils/data/dataloader.py:1275`` becomes ``torch/…/dataloader.py:1275``, then ``…taloader.py:1275``.
    """
    if cell_len(path) <= cells:
        return path
    first, _, rest = path.partition("/")
    short = f"{first}/{ELLIPSIS}/{rest.rpartition('/')[2]}" if "/" in rest else path
    if cell_len(short) <= cells:
        return short
    last = path.rpartition("/")[2]
    while last and cell_len(last) > cells - 1:
        last = last[1:]
    return ELLIPSIS + last if cells > 0 else ""


def cut_name(name: str, cells: int) -> str:
    """Return a function's name in at most ``cells`` cells; of a qualified one the end is kept, which tells it apart."""
    while "." in name and cell_len(name) > cells > 1:
        name = ELLIPSIS + name.lstrip(ELLIPSIS)[1:]
    return cut(name, cells)


def fit_runs(runs: Sequence[Run], cells: int, *, right: bool = False, blank: Style | None = None) -> list[Segment]:
    """Return runs as segments in exactly ``cells`` cells; ``blank`` is the style of what fills them up."""
    segments: list[Segment] = []
    left = cells
    for text, style in runs:
        fitting = text if cell_len(text) <= left else cut(text, left)
        if fitting:
            segments.append(Segment(fitting, style))
            left -= cell_len(fitting)
        if fitting != text:
            break
    if left > 0:
        filling = Segment(" " * left, blank)
        segments.insert(0, filling) if right else segments.append(filling)
    return segments


_WORDS = re.compile(r" *[^ ]+| +$")


def wrap_runs(runs: Sequence[Run], cells: int, *, indent: int = 0) -> list[list[Run]]:
    """Return runs in lines of at most ``cells`` cells, all but the first indented; a longer word is left too long."""
    lines: list[list[Run]] = [[]]
    left = cells
    for chunk in _chunks(runs):
        needed = cells_of(chunk)
        if needed > left and lines[-1] and cells > indent:
            chunk[0] = Run(" " * indent + chunk[0].text.lstrip(" "), chunk[0].style)
            needed = cells_of(chunk)
            lines.append([])
            left = cells
        lines[-1] += chunk
        left -= needed
    return lines


def _chunks(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Yield what no line is broken within: a word, of one run or of several that no blank separates."""
    chunk: list[Run] = []
    for run in runs:
        for word in _WORDS.findall(run.text):
            if chunk and word.startswith(" "):
                yield chunk
                chunk = []
            chunk.append(Run(word, run.style))
    if chunk:
        yield chunk
