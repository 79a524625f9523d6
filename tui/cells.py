"""Fits content into the cells of a terminal.

This is for paths, names and runs of text, cut or wrapped, and for the strips of a timeline. All
text from a run passes ``visible`` on its way here: no name may move the cursor, hide itself, or be
markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from rich.cells import cell_len
from rich.style import Style

from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.render.plaintext import ELLIPSIS, cut, width
from profd.daemon.units import clock
from profd.tui.colors import PhaseLook
from profd.tui.columns import Ruler
from profd.tui.snapshot import PhaseShares

StyledRun = tuple[str, Style | str]
"""Text and its style, or the name of one in the style sheet: ``plain``, ``dim``, ``bad`` …"""
Run = str | StyledRun
"""A text alone is plain."""


def styled(runs: Iterable[Run]) -> Iterator[StyledRun]:
    """Yield runs, each with its style."""
    for run in runs:
        yield (run, "plain") if isinstance(run, str) else run


def cells_of(runs: Iterable[Run]) -> int:
    return sum(width(text) for text, _ in styled(runs))


def cut_path(path: str, cells: int) -> str:
    """Return a path in at most ``cells`` cells.

    Its first and its last part are kept, as people recognize it by them.
    ``torch/utils/data/dataloader.py:1275`` becomes ``torch/…/dataloader.py:1275``, then
    ``…taloader.py:1275``.
    """
    if cell_len(path) <= cells:
        return path
    first, _, rest = path.partition("/")
    short = f"{first}/{ELLIPSIS}/{rest.rpartition('/')[2]}" if "/" in rest else path
    if cell_len(short) <= cells:
        return short
    return cut(ELLIPSIS + path.rpartition("/")[2], cells, keep_end=True)


def cut_name(name: str, cells: int) -> str:
    """Return a function's name in at most ``cells`` cells.

    Of a qualified name the end is kept, which says most.
    """
    while "." in name and cell_len(name) > cells > 1:
        name = ELLIPSIS + name.lstrip(ELLIPSIS)[1:]
    return cut(name, cells)


def fit_runs(
    runs: Iterable[Run],
    cells: int,
    *,
    blank: Style | str = "plain",
    right: bool = False,
    shorten: Callable[[str, int], str] = cut,
) -> list[StyledRun]:
    """Return runs in exactly ``cells`` cells.

    ``blank`` is the style of the padding; ``shorten`` cuts the text that does not fit.
    """
    fitted: list[StyledRun] = []
    left = cells
    for text, style in styled(runs):
        fitting = text if cell_len(text) <= left else shorten(text, left)
        if fitting:
            fitted.append((fitting, style))
            left -= cell_len(fitting)
        if fitting != text:
            break
    filling: list[StyledRun] = [(" " * left, blank)] if left > 0 else []
    return filling + fitted if right else fitted + filling


_WORDS = re.compile(r" *[^ ]+| +$")


def wrap_runs(
    runs: Iterable[Run], cells: int, *, most: int, indent: int = 0
) -> list[list[StyledRun]]:
    """Return runs in lines of at most ``cells`` cells, all but the first indented.

    A word that is longer than a line is not broken. Of ``most`` lines the last has the whole rest.
    """
    lines: list[list[StyledRun]] = [[]]
    left = cells
    for chunk in _chunks(runs):
        needed = cells_of(chunk)
        if needed > left and lines[-1] and cells > indent and len(lines) < most:
            text, style = chunk[0]
            chunk[0] = (" " * indent + text.lstrip(" "), style)
            needed = cells_of(chunk)
            lines.append([])
            left = cells
        lines[-1] += chunk
        left -= needed
    return lines


def _chunks(runs: Iterable[Run]) -> Iterator[list[StyledRun]]:
    """Yield the words, within which no line is broken.

    A word is of one run, or of several that no blank separates.
    """
    chunk: list[StyledRun] = []
    for text, style in styled(runs):
        for word in _WORDS.findall(text):
            if chunk and word.startswith(" "):
                yield chunk
                chunk = []
            chunk.append((word, style))
    if chunk:
        yield chunk


_LEVELS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = 8
_TICKS_NS = tuple(
    [seconds * SECOND_NS for seconds in (1, 2, 5, 10, 15, 30)]
    + [minutes * MINUTE_NS for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]
)
_TICK_CELLS = 12


def sparkline(cells: Sequence[float | None], top: float) -> str:
    """Return a character for each value of 0 to ``top``; a blank for a missing value."""
    return "".join(
        " " if cell is None else _level(cell / top if top > 0 else 0.0) for cell in cells
    )


def _level(share: float) -> str:
    return _LEVELS[min(max(round(share * _EIGHTHS), 1), _EIGHTHS)]


def slice_of(mixture: PhaseShares, row: int, rows: int) -> list[tuple[str, int]]:
    """Return the phases stacked in one of the rows of a column, in eighths of a cell.

    Rows are from the top, and the phases in a row are from the bottom. Each row's eighths add up to
    8. A single row has only the largest phase: three colors in one cell would be a guess.
    """
    if mixture and rows == 1:
        return [(max(mixture, key=mixture.__getitem__), _EIGHTHS)]
    low, whole = (rows - row - 1) * _EIGHTHS, rows * _EIGHTHS
    ends = [round(whole * end) for end in accumulate(mixture.values())]
    ends[-1:] = [whole]
    bounds = zip(mixture, [0, *ends], ends, strict=False)
    parts = [(phase, min(end, low + _EIGHTHS) - max(begin, low)) for phase, begin, end in bounds]
    return [(phase, eighths) for phase, eighths in parts if eighths > 0]


def slice_run(parts: Sequence[tuple[str, int]], looks: Mapping[str, PhaseLook]) -> Run:
    """Return the cell that shows the phases stacked in it.

    It is a letter on its color, or the two largest phases as two colors.
    """
    if not parts:
        return " "
    largest = sorted(parts, key=lambda part: -part[1])[:2]
    look = looks[largest[0][0]]
    if len(parts) == 1 or look.color is None:
        return (look.letter, look.quiet)
    lower, upper = sorted(largest, key=parts.index)
    eighths = round(_EIGHTHS * lower[1] / (lower[1] + upper[1]))
    style = Style(color=looks[lower[0]].color, bgcolor=looks[upper[0]].color)
    return (_LEVELS[min(max(eighths, 1), _EIGHTHS - 1)], style)


def axis(ruler: Ruler, columns: int) -> str:
    """Return the times below the columns, each at its column."""
    step_ns = next(
        (step for step in _TICKS_NS if step >= _TICK_CELLS * ruler.column_ns), _TICKS_NS[-1]
    )
    form = "%H:%M:%S" if step_ns < MINUTE_NS else "%H:%M" if step_ns < 1440 * MINUTE_NS else "%d %b"
    text = ""
    at_ns = -(-ruler.from_ns // step_ns) * step_ns
    while (column := int((at_ns - ruler.from_ns) / ruler.column_ns)) < columns:
        label = clock(at_ns, form)
        if column + len(label) <= columns and column >= len(text) + (2 if text else 0):
            text = f"{text:<{column}}{label}"
        at_ns += step_ns
    return text
