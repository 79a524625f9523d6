"""What a strip of the timeline looks like: columns of phases, sparklines, and the axis below them.

Plain functions from numbers to characters; the widget gives them their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from rich.style import Style

from profd.daemon.clock import SECOND_NS
from profd.daemon.units import clock
from profd.tui.cells import Run
from profd.tui.colors import PhaseLook
from profd.tui.snapshot import PhaseShare
from profd.tui.timeline.bins import Ruler

_LEVELS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = 8
_MINUTE_NS = 60 * SECOND_NS
_TICKS_NS = tuple(
    [seconds * SECOND_NS for seconds in (1, 2, 5, 10, 15, 30)]
    + [minutes * _MINUTE_NS for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]
)
_TICK_CELLS = 12


def sparkline(cells: Sequence[float | None], top: float) -> str:
    """Return a character for each value of 0 to ``top``; a blank where there is none."""
    return "".join(" " if cell is None else _level(cell / top if top > 0 else 0.0) for cell in cells)


def _level(share: float) -> str:
    return _LEVELS[min(max(round(share * _EIGHTHS), 1), _EIGHTHS)]


def slices(mixture: Sequence[PhaseShare], rows: int) -> list[list[tuple[str, int]]]:
    """Return, for each row of a column from the top, the phases stacked in it from the bottom, in eighths of a cell.

    Each row's eighths add up to 8. A single row has only the largest: three colors in one cell would be a guess.
    """
    if not mixture:
        return [[] for _ in range(rows)]
    if rows == 1:
        return [[(max(mixture, key=lambda part: part.share).phase, _EIGHTHS)]]
    whole = rows * _EIGHTHS
    ends = [round(whole * end) for end in accumulate(part.share for part in mixture)]
    ends[-1] = whole
    stacked: list[list[tuple[str, int]]] = []
    for row in reversed(range(rows)):
        low, high = row * _EIGHTHS, (row + 1) * _EIGHTHS
        bounds = zip([0, *ends], ends, mixture, strict=False)
        parts = [(part.phase, min(end, high) - max(start, low)) for start, end, part in bounds]
        stacked.append([(phase, eighths) for phase, eighths in parts if eighths > 0])
    return stacked


def slice_run(parts: Sequence[tuple[str, int]], looks: dict[str, PhaseLook], empty: Style) -> Run:
    """Return the cell that shows the phases stacked in it: a letter on its color, or the two largest as two colors."""
    if not parts:
        return Run(" ", empty)
    largest = sorted(parts, key=lambda part: -part[1])[:2]
    lower, upper = (part for part in parts if part in largest) if len(largest) == 2 else (parts[0], None)
    look = looks[max(parts, key=lambda part: part[1])[0]]
    if upper is None or look.color is None:
        return Run(look.letter, look.quiet)
    eighths = round(_EIGHTHS * lower[1] / (lower[1] + upper[1]))
    style = Style(color=looks[lower[0]].color, bgcolor=looks[upper[0]].color)
    return Run(_LEVELS[min(max(eighths, 1), _EIGHTHS - 1)], style)


def axis(ruler: Ruler, columns: int) -> str:
    """Return the times below the columns, each at the column in which it lies."""
    step_ns = next((step for step in _TICKS_NS if step >= _TICK_CELLS * ruler.column_ns), _TICKS_NS[-1])
    form = "%H:%M:%S" if step_ns < _MINUTE_NS else "%H:%M" if step_ns < 1440 * _MINUTE_NS else "%d %b"
    text = ""
    at_ns = -(-ruler.from_ns // step_ns) * step_ns
    while (column := int((at_ns - ruler.from_ns) / ruler.column_ns)) < columns:
        label = clock(at_ns, form)
        if column + len(label) <= columns and column >= len(text) + (2 if text else 0):
            text = f"{text:<{column}}{label}"
        at_ns += step_ns
    return text


def squeezed(cells: Sequence[float | None], count: int) -> list[float | None]:
    """Return the means of cells in ``count`` columns, or in as many as there are cells."""
    count = min(count, len(cells))
    bounds = [len(cells) * number // count for number in range(count + 1)] if count else []
    parts = [[cell for cell in cells[a:b] if cell is not None] for a, b in pairwise(bounds)]
    return [sum(part) / len(part) if part else None for part in parts]
