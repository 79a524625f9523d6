"""The timeline: the phases of the main threads, CPU and memory of the target, CPU of the host, GPUs, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.geometry import Size
from textual.message import Message

from profd.daemon.analyze.phases import PHASES
from profd.daemon.render.units import percent, size
from profd.daemon.render.visible import visible
from profd.tui.cells import Run, fit, width
from profd.tui.gauges import GPU_SERIES
from profd.tui.snapshot import Gauge, PhaseShare, Snapshot
from profd.tui.view import Window
from profd.tui.widgets.drawn import Lines
from profd.tui.widgets.strips import axis, slice_run, slices, sparkline

LABEL_CELLS = 10
SHORT_NAMES = {
    "data wait": "data",
    "data load in process": "load",
    "host-to-device copy": "h2d",
    "forward": "fwd",
    "backward": "bwd",
    "optimizer": "opt",
    "synchronize": "sync",
    "collective": "coll",
    "checkpoint": "save",
    "evaluation": "eval",
    "logging": "log",
    "compile": "jit",
    "startup, import": "import",
    "waiting": "wait",
}
GAUGE_LABELS = {
    "cpu_cores": "CPU",
    "rss_bytes": "memory",
    "host_cpu_share": "host CPU",
    GPU_SERIES: "GPU",
}
_SHARES = ("host_cpu_share", GPU_SERIES)
_FEW, _FEW_WITH_GPU = (0, 1), (0, 3)  # the gauges where there is room for two
_WIDE = 100
_SIDE_CELLS, _NARROW_SIDE_CELLS = 44, 15


class StripsResized(Message):
    """There is other room for the strips."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns


class Row(NamedTuple):
    """What a line shows: ``part`` of ``parts`` of the strip of this number."""

    kind: str
    strip: int = 0
    part: int = 0
    parts: int = 1


class Timeline(Lines):
    """The strips one below the other, on one axis."""

    snapshot: Snapshot | None = None
    _rows: tuple[Row, ...] = (Row("axis"),)
    _columns: int = 0

    def show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot."""
        self.snapshot = snapshot
        self._lay_out()
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Tell how many columns there are now."""
        columns = max(event.size.width - LABEL_CELLS - _side_cells(event.size.width) - 2, 1)
        if columns != self._columns:
            self._columns = columns
            self.post_message(StripsResized(columns))
        self._lay_out()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines."""
        return len(self._rows)

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return a line: the name of the strip, the strip, and what it comes to."""
        if self.snapshot is None or y >= len(self._rows):
            return []
        row = self._rows[y]
        if row.kind == "lane":
            return self._lane(row, width)
        if row.kind == "legend":
            lanes = self.snapshot.timeline.lanes
            return [
                self.run(" " * LABEL_CELLS),
                *self._short_legend(lanes[0].shares if lanes else (), width - LABEL_CELLS),
            ]
        if row.kind == "gauge":
            return self._gauge(self.snapshot.timeline.gauges[row.strip])
        return self._axis(self.snapshot)

    def _lay_out(self) -> None:
        lanes = len(self.snapshot.timeline.lanes) if self.snapshot else 1
        gauges = self.snapshot.timeline.gauges if self.snapshot else ()
        rows = plan(self.app.size, lanes, has_gpu=any(map(_is_of_gpus, gauges)))
        if rows != self._rows:
            self._rows = rows
            self.refresh(layout=True)

    def _lane(self, row: Row, width: int) -> list[Run]:
        lanes = self.snapshot.timeline.lanes if self.snapshot else ()
        if row.strip >= len(lanes):
            return []
        lane = lanes[row.strip]
        looks = {phase.name: self.phase_look(phase.name) for phase in PHASES}
        empty = self.ink("plain")
        cells = [
            slice_run(slices(mixture, row.parts)[row.part], looks, empty) for mixture in lane.cells[: self._columns]
        ]
        cells += [Run(" " * (self._columns - len(cells)), empty)]
        label = visible(lane.label) if row.part == 0 else ""
        runs = [self.run(f" {fit(label, LABEL_CELLS - 2)} ", "dim"), *cells, self.run("  ")]
        if _side_cells(width) == _SIDE_CELLS:
            side = self._legend(lane.shares, row) if row.parts > 1 else self._short_legend(lane.shares, _SIDE_CELLS)
        else:
            side = self._short_legend(lane.shares[:1], _NARROW_SIDE_CELLS)
        return runs + side

    def _legend(self, shares: Sequence[PhaseShare], row: Row) -> list[Run]:
        """Return a line of the legend beside a tall lane: it is read down the first column, then the second."""
        runs: list[Run] = []
        for share in shares[row.part :: row.parts][:2]:
            look = self.phase_look(share.phase)
            name = share.phase if len(share.phase) <= 12 else SHORT_NAMES.get(share.phase, share.phase)
            runs += [Run(look.letter, look.cell), self.run(f" {fit(name, 12)}", "dim")]
            runs += [self.run(f"{percent(share.share):>5}"), self.run("   ")]
        return runs

    def _short_legend(self, shares: Sequence[PhaseShare], cells: int) -> list[Run]:
        """Return as many phases as fit beside each other, the largest first."""
        runs: list[Run] = []
        for share in shares:
            look = self.phase_look(share.phase)
            item = [
                Run(look.letter, look.cell),
                self.run(f" {SHORT_NAMES.get(share.phase, share.phase)} ", "dim"),
                self.run(percent(share.share).removesuffix(" %")),
                self.run("  "),
            ]
            cells -= sum(width(run.text) for run in item)
            if cells < 0:
                break
            runs += item
        return runs

    def _gauge(self, gauge: Gauge) -> list[Run]:
        # A little headroom: strips at their full height would run into each other.
        top = (
            1.0 if gauge.name in _SHARES else 1.2 * max((cell for cell in gauge.cells if cell is not None), default=0.0)
        )
        strip = fit(sparkline(gauge.cells[: self._columns], top), self._columns)
        if gauge.name == GPU_SERIES and not _is_of_gpus(gauge):
            return [self.run(f" {fit('GPU', LABEL_CELLS - 1)}", "dim"), self.run(fit("no GPU", self._columns), "faint")]
        value = size(gauge.value) if gauge.name == "rss_bytes" else percent(gauge.value)
        runs = [self.run(f" {fit(GAUGE_LABELS[gauge.name], LABEL_CELLS - 1)}", "dim")]
        runs += [self.run(strip, "bar"), self.run(f"  {value}")]
        return runs if gauge.kind == "now" or gauge.value is None else [*runs, self.run(f"  {gauge.kind}", "dim")]

    def _axis(self, snapshot: Snapshot) -> list[Run]:
        times = fit(axis(snapshot.timeline.ruler, self._columns), self._columns)
        runs = [self.run(" " * LABEL_CELLS), self.run(times, "faint"), self.run("  ")]
        if snapshot.view.window is Window.RECENT:
            return [*runs, self.run(snapshot.view.window.value, "accent")]
        return [*runs, self.run("live ▶", "good")] if snapshot.info.state == "live" else runs


def plan(screen: Size, lanes: int, *, has_gpu: bool = False) -> tuple[Row, ...]:
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
    rows += [Row("gauge", index) for index in (range(4) if is_roomy else _FEW_WITH_GPU if has_gpu else _FEW)]
    return (*rows, Row("axis"))


def _is_of_gpus(gauge: Gauge) -> bool:
    """Say whether a gauge tells of GPUs: a run without one has it too, with nothing in it."""
    return gauge.name == GPU_SERIES and any(cell is not None for cell in (*gauge.cells, gauge.value))


def _side_cells(width: int) -> int:
    """Return how many cells there are right of the strips."""
    if width >= _WIDE:
        return _SIDE_CELLS
    return _NARROW_SIDE_CELLS if width >= 50 else 0
