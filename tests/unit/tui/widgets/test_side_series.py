"""What stands right of a strip of numbers: nothing of it is cut."""

from __future__ import annotations

from typing import cast

from rich.style import Style

from profd.tui.cells import Run
from profd.tui.series import GPU_MEMORY_SERIES, GPU_POWER_SERIES, GPU_SERIES
from profd.tui.snapshot import Series
from profd.tui.widgets.linewidget import LineWidget
from profd.tui.widgets.side import side_of

CELLS = (0.5,) * 64
MEMORY = Series(GPU_MEMORY_SERIES, CELLS, 12.1e9, "peak", 139e9)
POWER = Series(GPU_POWER_SERIES, CELLS, 2212.0, "mean")


class AnyStyle:
    """Writes in any style."""

    def run(self, text: str, style: str = "plain") -> Run:
        return Run(text, Style())


def side(one: Series, beside: list[Series], cells: int) -> str:
    runs = side_of(cast(LineWidget, AnyStyle()), one, {one.name: one for one in beside}, cells)
    text = "".join(run.text for run in runs)
    assert len(text) <= cells
    return text


def test_with_less_room_memory_stays_and_watts_go() -> None:
    text = side(Series(GPU_SERIES, CELLS, 1.0, "mean"), [MEMORY, POWER], 36)
    assert "12 GB peak" in text
    assert "W" not in text
