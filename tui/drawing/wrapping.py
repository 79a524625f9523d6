"""Breaks runs of text into lines at their blanks. Knows nothing of what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from profd.daemon.render.cells import width
from profd.tui.drawing.cells import Run

_WORDS = re.compile(r" *[^ ]+| +$")


def wrap_runs(runs: Sequence[Run], cells: int, *, indent: int = 0) -> list[list[Run]]:
    """Return runs in lines of at most ``cells`` cells, all but the first indented; a longer word is left too long."""
    lines: list[list[Run]] = [[]]
    left = cells
    for chunk in _chunks(runs):
        needed = sum(width(run.text) for run in chunk)
        if needed > left and lines[-1] and cells > indent:
            chunk[0] = Run(" " * indent + chunk[0].text.lstrip(" "), chunk[0].style)
            needed = sum(width(run.text) for run in chunk)
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
