"""The timeline: phases of the main threads, GPUs, CPU, memory, steps, marks and the time, with a cursor over all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message

from profd.daemon.analyze.phases import PHASES
from profd.daemon.render.plaintext import fit, visible
from profd.tui.cells import Run
from profd.tui.snapshot import Gauge, PhaseShare, Snapshot
from profd.tui.snapshot import Timeline as Strips
from profd.tui.strips import axis, slice_run, slices, sparkline
from profd.tui.timeline.bins import Ruler
from profd.tui.timeline.gauges import GPU_MEMORY_SERIES, GPU_POWER_SERIES, GPU_SERIES
from profd.tui.timeline.pace import STEPS
from profd.tui.timeline.scrub import Scrub
from profd.tui.view import Range
from profd.tui.widgets.drawn import Lines
from profd.tui.widgets.side import (
    LABELS,
    columns_of,
    mark_cells,
    mark_side,
    short_legend,
    side_of,
    tall_legend,
    time_side,
    top_of,
)

LABEL_CELLS = 10
_WIDE = 100
_SIDE_CELLS, _NARROW_SIDE_CELLS = 44, 15


class StripsResized(Message):
    """There is other room for the strips."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns


class Scrubbed(Message):
    """Another time is looked at."""

    def __init__(self, scrub: Scrub) -> None:
        super().__init__()
        self.scrub = scrub


class Row(NamedTuple):
    """What a line shows: ``part`` of ``parts`` of the lane of this number, or the gauge of this name."""

    kind: str
    strip: int = 0
    part: int = 0
    parts: int = 1
    gauge: str = ""


Move = Callable[[Scrub, Ruler, Range], Scrub]


class Timeline(Lines):
    """The strips one below the other, on one axis."""

    snapshot: Snapshot | None = None
    scrub: Scrub = Scrub()
    _rows: tuple[Row, ...] = (Row("axis"),)
    _columns: int = 0
    _drag_from_ns: int | None = None

    def show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot."""
        self.snapshot = snapshot
        self._lay_out()
        self.refresh()

    def move(self, to: Move) -> None:
        """Look at another time, as a function of where the person is now says."""
        if self.snapshot is None:
            return
        scrub = to(self.scrub, self.snapshot.timeline.ruler, _sampled(self.snapshot.timeline))
        if scrub != self.scrub:
            self.scrub = scrub
            self.refresh()
            self.post_message(Scrubbed(scrub))

    def on_resize(self, event: events.Resize) -> None:
        """Tell how many columns there are now."""
        columns = max(event.size.width - LABEL_CELLS - _side_cells(event.size.width) - 2, 1)
        if columns != self._columns:
            self._columns = columns
            self.post_message(StripsResized(columns))
        self._lay_out()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Put the cursor where the mouse is; let go of it where the line says that the view is not live."""
        at_ns = self._time_at(event.x)
        if at_ns is not None:
            self._drag_from_ns = at_ns
            self.capture_mouse()
            self.move(lambda scrub, ruler, run: scrub.released_range().at(at_ns, ruler, run))
        elif event.y == len(self._rows) - 1:
            self.move(lambda scrub, ruler, run: scrub.released())

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Choose the time from where the mouse was pressed to where it is."""
        start_ns, at_ns = self._drag_from_ns, self._time_at(event.x, nearest=True)
        if start_ns is not None and at_ns is not None:
            self.move(lambda scrub, ruler, run: scrub.dragged(start_ns, at_ns, ruler, run))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """End a drag."""
        self._drag_from_ns = None
        self.release_mouse()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines."""
        return len(self._rows)

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return a line: the name of the strip, the strip, and what it comes to."""
        if self.snapshot is None or y >= len(self._rows):
            return []
        row = self._rows[y]
        if row.kind == "lane":
            return self._lane(self.snapshot, row, width)
        if row.kind == "legend":
            lanes = self.snapshot.timeline.lanes
            shares = lanes[0].shares if lanes else ()
            return [self.run(" " * LABEL_CELLS), *short_legend(self, shares, width - LABEL_CELLS)]
        if row.kind == "gauge":
            return self._gauge(self.snapshot, row.gauge, width)
        return self._marks(self.snapshot, width) if row.kind == "marks" else self._axis(self.snapshot, width)

    def _lay_out(self) -> None:
        lanes = len(self.snapshot.timeline.lanes) if self.snapshot else 1
        gauges = self.snapshot.timeline.gauges if self.snapshot else ()
        known = {gauge.name for gauge in gauges if _is_known(gauge)}
        rows = plan(self.app.size, lanes, has_gpu=GPU_SERIES in known, has_steps=STEPS in known)
        if rows != self._rows:
            self._rows = rows
            self.refresh(layout=True)

    def _lane(self, snapshot: Snapshot, row: Row, width: int) -> list[Run]:
        lanes = snapshot.timeline.lanes
        if row.strip >= len(lanes):
            return []
        lane = lanes[row.strip]
        cells = self._lane_cells(snapshot, lane.cells[: self._columns], row)
        label = visible(lane.label) if row.part == 0 else ""
        runs = [self.run(f" {fit(label, LABEL_CELLS - 2)} ", "dim"), *cells, self.run("  ")]
        if _side_cells(width) != _SIDE_CELLS:
            return runs + short_legend(self, lane.shares[:1], _NARROW_SIDE_CELLS)
        if row.parts > 1:
            return runs + tall_legend(self, lane.shares, row.part, row.parts)
        return runs + short_legend(self, lane.shares, _SIDE_CELLS)

    def _lane_cells(self, snapshot: Snapshot, mixtures: Sequence[Sequence[PhaseShare]], row: Row) -> list[Run]:
        looks = {phase.name: self.phase_look(phase.name) for phase in PHASES}
        empty, cursor = self.ink("plain"), self._cursor_columns(snapshot)
        cells = []
        for column, mixture in enumerate(mixtures):
            parts = slices(mixture, row.parts)[row.part]
            if column in cursor:
                letter = looks[max(parts, key=lambda part: part[1])[0]].letter if parts else " "
                cells.append(Run(letter, empty + Style(reverse=True, bold=True)))
            else:
                cells.append(slice_run(parts, looks, empty))
        return [*cells, Run(" " * (self._columns - len(cells)), empty)]

    def _gauge(self, snapshot: Snapshot, name: str, width: int) -> list[Run]:
        gauges = {gauge.name: gauge for gauge in snapshot.timeline.gauges}
        gauge = gauges.get(name)
        if gauge is None:
            return []
        label = self.run(f" {fit(LABELS[name], LABEL_CELLS - 1)}", "dim")
        if name == GPU_SERIES and not _is_known(gauge):
            return [label, self.run(fit("no GPU", self._columns), "faint")]
        strip = fit(sparkline(gauge.cells[: self._columns], top_of(gauge)), self._columns)
        own = {row.gauge for row in self._rows}
        is_wide = _side_cells(width) == _SIDE_CELLS
        beside = {other: value for other, value in gauges.items() if other not in own}
        if not is_wide:  # there is room for a short number, but for no second strip
            beside = {other: value for other, value in beside.items() if other == GPU_POWER_SERIES}
        side = side_of(self, gauge, beside, _side_cells(width))
        return [label, *self._highlighted(snapshot, strip), self.run("  "), *side]

    def _highlighted(self, snapshot: Snapshot, strip: str) -> list[Run]:
        """Return a strip with its cursor, and what is chosen of it brighter than the rest."""
        chosen = self.scrub.chosen
        inside = columns_of(chosen, snapshot, self._columns) if chosen and self.scrub.has_range else range(0)
        cursor = self._cursor_columns(snapshot)
        runs = []
        for column, cell in enumerate(strip):
            style = self.ink("accent" if column in inside else "bar")
            runs.append(Run(cell, style + Style(reverse=True) if column in cursor else style))
        return runs

    def _marks(self, snapshot: Snapshot, width: int) -> list[Run]:
        cells = mark_cells(self, snapshot, self.scrub, self._columns)
        side = mark_side(self, snapshot, self.scrub, _side_cells(width))
        return [self.run(" " * LABEL_CELLS), *cells, self.run("  "), *side]

    def _axis(self, snapshot: Snapshot, cells: int) -> list[Run]:
        times = fit(axis(snapshot.timeline.ruler, self._columns), self._columns)
        runs = [self.run(" " * LABEL_CELLS), self.run(times, "faint"), self.run("  ")]
        is_narrow = _side_cells(cells) != _SIDE_CELLS
        return [*runs, *time_side(self, snapshot, self.scrub, is_narrow=is_narrow)]

    def _cursor_columns(self, snapshot: Snapshot) -> range:
        cursor = self.scrub.cursor
        return columns_of(cursor, snapshot, self._columns) if cursor else range(0)

    def _time_at(self, x: int, *, nearest: bool = False) -> int | None:
        """Return the time of the column at a cell; None where there is none, unless the nearest one will do."""
        if self.snapshot is None:
            return None
        ruler = self.snapshot.timeline.ruler
        column = x - LABEL_CELLS
        if nearest:
            column = min(max(column, 0), ruler.count - 1)
        return ruler.from_ns + column * ruler.column_ns if 0 <= column < ruler.count else None


def plan(screen: Size, lanes: int, *, has_gpu: bool = False, has_steps: bool = True) -> tuple[Row, ...]:
    """Return the lines for a screen of this size: everything where there is room, else the phases first."""
    lanes = max(lanes, 1)
    if screen.height < 20:
        return Row("lane"), Row("legend")
    is_roomy = screen.height >= 30
    lines = 6 if screen.height >= 50 else 4 if is_roomy else 2
    shown = min(lanes, 2 * lines if is_roomy else lines)
    parts = max(lines // lanes, 1) if is_roomy else 1
    rows = [Row("lane", index, part, parts) for index in range(shown) for part in range(parts)]
    if screen.width < _WIDE and lanes == 1:
        rows.append(Row("legend"))
    rows += [Row("gauge", gauge=name) for name in _gauges(screen, has_gpu=has_gpu, has_steps=has_steps)]
    return (*rows, Row("marks"), Row("axis"))


def _gauges(screen: Size, *, has_gpu: bool, has_steps: bool) -> Sequence[str]:
    """Return the gauges that get a line, from the top down; those beside others have none."""
    if screen.height < 30:
        return (GPU_SERIES, "cpu_cores") if has_gpu else ("cpu_cores", "rss_bytes")
    steps = (STEPS,) if has_steps else ()
    if screen.height < 50 and screen.width >= _WIDE:
        return (GPU_SERIES, "cpu_cores", *steps)
    gpus = (GPU_SERIES, GPU_MEMORY_SERIES) if has_gpu else (GPU_SERIES,)
    host = ("host_cpu_share",) if screen.height >= 50 else ()
    return (*gpus, "cpu_cores", "rss_bytes", *host, *steps)


def _sampled(timeline: Strips) -> Range:
    """Return the run up to its newest samples, where these are to be seen: what came later is still in flight."""
    ruler, run = timeline.ruler, timeline.run
    last = max((column for lane in timeline.lanes for column, cell in enumerate(lane.cells) if cell), default=None)
    if last is None or ruler.to_ns < run.to_ns:
        return run
    return Range(run.from_ns, min(ruler.from_ns + (last + 1) * ruler.column_ns, run.to_ns))


def _is_known(gauge: Gauge) -> bool:
    """Say whether anything is known of a gauge: a run without a GPU has its gauges, too."""
    return gauge.value is not None or any(cell is not None for cell in gauge.cells)


def _side_cells(width: int) -> int:
    """Return how many cells there are right of the strips."""
    if width >= _WIDE:
        return _SIDE_CELLS
    return _NARROW_SIDE_CELLS if width >= 50 else 0
