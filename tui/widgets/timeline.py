"""The timeline: phases, GPUs, CPU, memory, steps, marks and the time.

The phases are those of the main threads. One cursor runs through all strips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message

from profd.daemon.render.plaintext import fit
from profd.daemon.timerange import TimeRange
from profd.tui.cells import Run, axis, slice_of, slice_run, sparkline
from profd.tui.columns import Ruler
from profd.tui.pace import STEPS
from profd.tui.scrub import Scrub
from profd.tui.series import GPU_MEMORY_SERIES, GPU_POWER_SERIES, GPU_SERIES
from profd.tui.snapshot import Series, Snapshot
from profd.tui.widgets import side
from profd.tui.widgets.linewidget import LineWidget

LABEL_CELLS = 10
_WIDE = 100
_SIDE_CELLS, _NARROW_SIDE_CELLS = 44, 15


@dataclass
class Scrubbed(Message):
    """The person looks at another time."""

    scrub: Scrub


class Line(NamedTuple):
    """The content of a line: part of a phase row, or a series.

    It is ``part`` of ``parts`` of the phase row of this number, or the series of this name.
    """

    kind: str
    row: int = 0
    part: int = 0
    parts: int = 1
    series: str = ""


Move = Callable[[Scrub, Ruler, TimeRange], Scrub]


class Timeline(LineWidget):
    """The strips one below the other, on one axis."""

    scrub: Scrub = Scrub()
    _lines: tuple[Line, ...] = (Line("axis"),)
    _drag_from_ns: int | None = None

    def move(self, to: Move) -> None:
        """Look at another time.

        ``to`` is called with the place, the columns, and the run up to its newest samples.
        """
        if self.snapshot is None:
            return
        timeline = self.snapshot.timeline
        ruler, run = timeline.ruler, timeline.run
        seen = [
            column for row in timeline.phase_rows for column, cell in enumerate(row.cells) if cell
        ]
        if seen and ruler.to_ns >= run.to_ns:  # later samples are still in flight
            seen_to_ns = ruler.from_ns + (max(seen) + 1) * ruler.column_ns
            run = TimeRange(run.from_ns, min(seen_to_ns, run.to_ns))
        scrub = to(self.scrub, ruler, run)
        if scrub != self.scrub:
            self.scrub = scrub
            self.refresh()
            self.post_message(Scrubbed(scrub))

    @property
    def columns(self) -> int:
        return max(self.size.width - LABEL_CELLS - _side_cells(self.size.width) - 2, 1)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Put the cursor under the mouse.

        A click on the text that says that the view is not live releases the cursor.
        """
        at_ns = self._time_at(event.x)
        if at_ns is not None:
            self._drag_from_ns = at_ns
            self.capture_mouse()
            self.move(
                lambda scrub, ruler, run: replace(scrub, from_ns=None, to_ns=None).at(
                    at_ns, ruler, run
                )
            )
        elif event.y == len(self._lines) - 1:
            self.move(lambda scrub, ruler, run: scrub.released())

    def on_mouse_move(self, event: events.MouseMove) -> None:
        start_ns, at_ns = self._drag_from_ns, self._time_at(event.x, nearest=True)
        if start_ns is not None and at_ns is not None:
            self.move(lambda scrub, ruler, run: scrub.dragged(start_ns, at_ns, ruler, run))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._drag_from_ns = None
        self.release_mouse()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines)

    def draw(self, y: int, width: int) -> Sequence[Run]:
        if self.snapshot is None or y >= len(self._lines):
            return []
        snapshot, line = self.snapshot, self._lines[y]
        if line.kind == "phases":
            return self._phases(snapshot, line, width)
        if line.kind == "series":
            return self._series(snapshot, line.series, width)
        label = " " * LABEL_CELLS
        if line.kind == "legend":
            rows = snapshot.timeline.phase_rows
            return [
                label,
                *side.short_legend(
                    self, rows[0].shares if rows else {}, snapshot.per_s, width - LABEL_CELLS
                ),
            ]
        if line.kind == "marks":
            cells = side.mark_cells(snapshot, self.scrub, self.columns)
            beside_it = side.mark_side(snapshot, self.scrub, _side_cells(width))
        else:
            cells = [(fit(axis(snapshot.timeline.ruler, self.columns), self.columns), "faint")]
            beside_it = side.time_side(
                snapshot, self.scrub, is_narrow=_side_cells(width) != _SIDE_CELLS
            )
        return [label, *cells, "  ", *beside_it]

    def on_resize(self) -> None:
        rows = len(self.snapshot.timeline.phase_rows) if self.snapshot else 1
        series = self.snapshot.timeline.series if self.snapshot else ()
        known = {one.name for one in series if _is_known(one)}
        lines = plan(self.app.size, rows, has_gpu=GPU_SERIES in known, has_steps=STEPS in known)
        if lines != self._lines:
            self._lines = lines
            self.refresh(layout=True)

    def _phases(self, snapshot: Snapshot, line: Line, width: int) -> list[Run]:
        if not snapshot.timeline.phase_rows:
            return []
        row = snapshot.timeline.phase_rows[line.row]
        looks = self.phase_looks
        cursor = side.columns_of(self.scrub.cursor, snapshot.timeline.ruler, self.columns)
        under = self.style_of("plain") + Style(reverse=True, bold=True)
        label = row.label if line.part == 0 else ""
        runs: list[Run] = [(f" {fit(label, LABEL_CELLS - 2)} ", "dim")]
        for column, mixture in enumerate(row.cells[: self.columns]):
            parts = slice_of(mixture, line.part, line.parts)
            if column in cursor:
                letter = looks[max(parts, key=lambda part: part[1])[0]].letter if parts else " "
                runs.append((letter, under))
            else:
                runs.append(slice_run(parts, looks))
        runs.append(" " * (max(self.columns - len(row.cells), 0) + 2))
        if _side_cells(width) != _SIDE_CELLS:
            return runs + side.short_legend(self, row.shares, None, _NARROW_SIDE_CELLS, 1)
        if line.parts > 1:
            return runs + side.tall_legend(self, row.shares, snapshot.per_s, line.part, line.parts)
        return runs + side.short_legend(self, row.shares, None, _SIDE_CELLS)

    def _series(self, snapshot: Snapshot, name: str, width: int) -> list[Run]:
        known = {series.name: series for series in snapshot.timeline.series}
        series = known[name]
        label = (f" {fit(side.LABELS[name], LABEL_CELLS - 1)}", "dim")
        if name == GPU_SERIES and not _is_known(series):
            return [label, (fit("no GPU", self.columns), "faint")]
        # The cursor stands out in the strip, and the chosen range is brighter than the rest.
        cursor, inside = (
            side.columns_of(time, snapshot.timeline.ruler, self.columns)
            for time in (self.scrub.cursor, self.scrub.chosen if self.scrub.has_range else None)
        )
        strip = []
        levels = sparkline(series.cells[: self.columns], side.top_of(series))
        for column, cell in enumerate(fit(levels, self.columns)):
            style = self.style_of("accent" if column in inside else "bar")
            strip.append((cell, style + Style(reverse=True) if column in cursor else style))
        power = known.get(GPU_POWER_SERIES) if name == GPU_SERIES else None
        return [label, *strip, "  ", *side.side_of(series, power, _side_cells(width) - 1)]

    def _time_at(self, x: int, *, nearest: bool = False) -> int | None:
        """Return the time of the column at a cell.

        None if there is no column, unless ``nearest`` allows the nearest one.
        """
        if self.snapshot is None:
            return None
        ruler, column = self.snapshot.timeline.ruler, x - LABEL_CELLS
        if nearest:
            column = min(max(column, 0), ruler.count - 1)
        return ruler.from_ns + column * ruler.column_ns if 0 <= column < ruler.count else None


def plan(screen: Size, rows: int, *, has_gpu: bool, has_steps: bool) -> tuple[Line, ...]:
    """Return the lines for a screen of this size.

    They are everything if there is room, else the phases first.
    """
    rows = max(rows, 1)
    if screen.height < 20:
        return Line("phases"), Line("legend")
    is_roomy = screen.height >= 30
    height = 6 if screen.height >= 50 else 4 if is_roomy else 2
    shown = min(rows, 2 * height if is_roomy else height)
    parts = max(height // rows, 1) if is_roomy else 1
    lines = [Line("phases", row, part, parts) for row in range(shown) for part in range(parts)]
    if screen.width < _WIDE and rows == 1:
        lines.append(Line("legend"))
    series = _planned_series(screen, has_gpu=has_gpu, has_steps=has_steps)
    return (*lines, *(Line("series", series=name) for name in series), Line("marks"), Line("axis"))


def _planned_series(screen: Size, *, has_gpu: bool, has_steps: bool) -> list[str]:
    """Return the series that get a line, from the top down."""
    steps = [STEPS] if has_steps else []
    if screen.height < 30:
        return [GPU_SERIES, "cpu_cores"] if has_gpu else ["cpu_cores", "rss_bytes"]
    gpus = [GPU_SERIES, GPU_MEMORY_SERIES] if has_gpu else [GPU_SERIES]
    host = ["host_cpu_share"] if screen.height >= 50 else []
    return [*gpus, "cpu_cores", "rss_bytes", *host, *steps]


def _is_known(series: Series) -> bool:
    return series.value is not None or any(cell is not None for cell in series.cells)


def _side_cells(width: int) -> int:
    return _SIDE_CELLS if width >= _WIDE else _NARROW_SIDE_CELLS if width >= 50 else 0
