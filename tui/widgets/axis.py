"""The two lines below the strips: what happened and what is chosen, and the time."""

from __future__ import annotations

from collections.abc import Sequence

from profd.daemon.analyze.phases import CHECKPOINT
from profd.daemon.render.visible import visible
from profd.daemon.units import time_range
from profd.tui.drawing.cells import Run
from profd.tui.snapshot import Lane, Snapshot
from profd.tui.timeline.marks import CHANGE, NOTE, SAVE, TROUBLE, WINDOW, Mark
from profd.tui.timeline.scrub import Scrub
from profd.tui.view import Range
from profd.tui.widgets.drawn import Lines

GLYPHS = {WINDOW: ("◆", "accent"), SAVE: ("▲", "dim"), NOTE: ("●", "good"), TROUBLE: ("!", "bad"), CHANGE: ("▸", "dim")}
LIVE = "live ▶"
_CURSOR = "┃"
_SAVE_SHARE = 0.2


def saves(lanes: Sequence[Lane], snapshot: Snapshot) -> list[Mark]:
    """Return marks where the first rank begins to write a checkpoint."""
    ruler, found, was_saving = snapshot.timeline.ruler, [], False
    for column, mixture in enumerate(lanes[0].cells if lanes else ()):
        is_saving = any(part.phase == CHECKPOINT and part.share >= _SAVE_SHARE for part in mixture)
        if is_saving and not was_saving:
            from_ns = ruler.from_ns + column * ruler.column_ns
            found.append(Mark(SAVE, from_ns, from_ns + 1, "save"))
        was_saving = is_saving
    return found


def columns_of(chosen: Range, snapshot: Snapshot, columns: int) -> range:
    """Return the columns in which a range lies, none where it is not on the timeline."""
    ruler = snapshot.timeline.ruler
    first, last = ruler.column_of(chosen.from_ns), ruler.column_of(chosen.to_ns - 1) + 1
    return range(max(first, 0), max(min(last, columns), 0))


def mark_cells(widget: Lines, snapshot: Snapshot, scrub: Scrub, columns: int) -> list[Run]:
    """Return the line of marks: the range in brackets, the cursor, what happened."""
    cells = [widget.run(" ")] * columns
    if scrub.has_range and scrub.chosen is not None:
        chosen = columns_of(scrub.chosen, snapshot, columns)
        for column in chosen:
            cells[column] = widget.run("─", "accent")
        if chosen and scrub.from_ns is not None and scrub.from_ns >= snapshot.timeline.ruler.from_ns:
            cells[chosen[0]] = widget.run("[", "accent")
        if chosen and scrub.to_ns is not None and scrub.to_ns <= snapshot.timeline.ruler.to_ns:
            cells[chosen[-1]] = widget.run("]", "accent")
    for mark in marks_in(snapshot):
        glyph, ink = GLYPHS[mark.kind]
        for column in columns_of(Range(mark.from_ns, mark.to_ns), snapshot, columns):
            cells[column] = widget.run(glyph, ink)
    if scrub.cursor is not None:
        for column in columns_of(scrub.cursor, snapshot, columns):
            cells[column] = widget.run(_CURSOR, "bright")
    return cells


def marks_in(snapshot: Snapshot) -> list[Mark]:
    """Return all marks of a snapshot, those seen in its lanes among them."""
    return [*saves(snapshot.timeline.lanes, snapshot), *snapshot.timeline.marks]


def mark_side(widget: Lines, snapshot: Snapshot, scrub: Scrub, cells: int) -> list[Run]:
    """Return what the mark under the cursor says, else what those marks mean that ``cells`` cells have room for."""
    ruler, marks = snapshot.timeline.ruler, marks_in(snapshot)
    if scrub.cursor is not None:
        at = scrub.cursor
        under = [mark for mark in marks if mark.from_ns < at.to_ns and mark.to_ns > at.from_ns]
        runs = [widget.run(f"{GLYPHS[mark.kind][0]} {visible(mark.text)}  ", GLYPHS[mark.kind][1]) for mark in under]
        if runs:
            return runs
    shown = dict.fromkeys(mark.kind for mark in marks if mark.to_ns > ruler.from_ns and mark.from_ns < ruler.to_ns)
    found: list[Run] = []
    for kind in shown:
        cells -= len(f"{GLYPHS[kind][0]} {kind}")
        if cells >= 0:
            found += [widget.run(GLYPHS[kind][0], GLYPHS[kind][1]), widget.run(f" {kind}  ", "dim")]
        cells -= 2
    return found


def time_side(widget: Lines, snapshot: Snapshot, scrub: Scrub, *, is_narrow: bool) -> list[Run]:
    """Return what is chosen, and whether the view goes on with the run."""
    chosen, info = scrub.chosen, snapshot.info
    live = [widget.run(LIVE, "good" if scrub.is_live else "faint")] if info.state == "live" else []
    if chosen is None:
        name = [] if snapshot.view.span_ns is None else [widget.run(f"{snapshot.view.name}   ", "accent")]
        return [*name, *live]
    chosen = chosen.within(snapshot.timeline.run)
    first, last = time_range(chosen.from_ns, chosen.to_ns)
    if scrub.has_range and scrub.to_ns is None and live:
        last = "now"
    if is_narrow:  # the hour is that of the axis
        return [widget.run(f"{first[3:]}–{last[3:] or last}", "accent")]  # noqa: RUF001
    times = f"{first} – {last}"  # noqa: RUF001
    if scrub.has_range:
        times = f"[── {times} ──]"
    return [widget.run(f"{times}   ", "accent"), *live]
