"""What stands beside and below the strips of the timeline: values, legend of phases, marks and the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profd.daemon.analyze.phases import CHECKPOINT, phase_named
from profd.daemon.render.plaintext import fit, visible, width
from profd.daemon.units import UNKNOWN, percent, rate, size, time_range
from profd.tui.cells import Run
from profd.tui.snapshot import Gauge, Lane, PhaseShare, Snapshot
from profd.tui.strips import sparkline, squeezed
from profd.tui.timeline.gauges import GPU_MEMORY_SERIES, GPU_POWER_SERIES, GPU_SERIES
from profd.tui.timeline.pace import STEPS
from profd.tui.timeline.scrub import CHANGE, NOTE, SAVE, TROUBLE, WINDOW, Mark, Scrub
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


LABELS = {
    "cpu_cores": "CPU",
    "rss_bytes": "RSS",
    "host_cpu_share": "host CPU",
    GPU_SERIES: "GPU",
    GPU_MEMORY_SERIES: "GPU mem",
    STEPS: "steps",
}
SHARES = ("host_cpu_share", GPU_SERIES)
BESIDE = {"cpu_cores": "rss_bytes", GPU_SERIES: GPU_MEMORY_SERIES}
"""Which gauge stands beside which where there is room for it, but not for a line of its own."""
_BESIDE_LABELS = {"rss_bytes": "RSS", GPU_MEMORY_SERIES: "mem"}
_VALUE_CELLS = 8
_MOST_BESIDE = 11
# A little headroom: strips at their full height would run into each other.
_HEADROOM = 1.2


def top_of(gauge: Gauge) -> float:
    """Return the value at which a strip is full."""
    if gauge.name in SHARES:
        return 1.0
    return gauge.limit or _HEADROOM * max((cell for cell in gauge.cells if cell is not None), default=0.0)


def amount(gauge: Gauge) -> str:
    """Return the value of a gauge with its unit, and with what it can be at most where that is known."""
    if gauge.value is None:
        return UNKNOWN
    if gauge.name == STEPS:
        return rate(gauge.value)
    if gauge.name == GPU_POWER_SERIES:
        return f"{gauge.value:.0f} W"
    if not gauge.name.endswith("_bytes"):
        return percent(gauge.value)
    return f"{size(gauge.value)} of {size(gauge.limit)}" if gauge.limit else size(gauge.value)


def side_of(widget: Lines, gauge: Gauge, beside: Mapping[str, Gauge], cells: int) -> list[Run]:
    """Return what stands right of a strip, in ``cells`` cells; ``beside`` are the gauges without a line."""
    value, kind = widget.run(f"{amount(gauge):<{_VALUE_CELLS}}"), _kind(widget, gauge)
    power = beside.get(GPU_POWER_SERIES) if gauge.name == GPU_SERIES else None
    watts = [widget.run(f"  {amount(power)}", "dim")] if power is not None and power.value is not None else []
    other = beside.get(BESIDE.get(gauge.name, ""))
    if other is None or other.value is None:
        short = [widget.run(amount(gauge)), *watts]
        return _fitting([[value, *kind, *_slope(widget, gauge), *watts], short, [value]], cells)
    lead = [value, *kind, *_slope(widget, gauge), widget.run(f"  {_BESIDE_LABELS[other.name]} ", "dim")]
    # What is cut would be misread: the limit goes before the watts do.
    tails = [
        [widget.run(f" {said}"), *_kind(widget, other), *_slope(widget, other), *rest]
        for said, rest in ((amount(other), watts), (size(other.value), watts), (size(other.value), []))
    ]
    tail = _fitting(tails, cells - _cells(lead))
    room = min(cells - _cells([*lead, *tail]), _MOST_BESIDE)
    strip = sparkline(squeezed(other.cells, room), top_of(other)) if room >= 3 else ""
    return [*lead, widget.run(strip, "bar"), *tail]


def _fitting(choices: Sequence[list[Run]], cells: int) -> list[Run]:
    """Return the first of some runs that there is room for, else the last."""
    return next((runs for runs in choices if _cells(runs) <= cells), choices[-1])


def _cells(runs: Sequence[Run]) -> int:
    return sum(width(run.text) for run in runs)


def _kind(widget: Lines, gauge: Gauge) -> list[Run]:
    return [] if gauge.kind == "now" or gauge.value is None else [widget.run(f" {gauge.kind}", "dim")]


def _slope(widget: Lines, gauge: Gauge) -> list[Run]:
    """Return by how much memory grows a minute; of what does not grow, that it is steady."""
    if gauge.slope_per_s is None:
        return []
    if not gauge.is_growing:
        return [widget.run("  steady", "dim")]
    return [widget.run(f"  +{size(60 * gauge.slope_per_s)}/min", "warn")]


def tall_legend(widget: Lines, shares: Sequence[PhaseShare], part: int, parts: int) -> list[Run]:
    """Return a line of the legend beside a tall lane: it is read down the first column, then the second."""
    runs: list[Run] = []
    for share in shares[part::parts][:2]:
        look = widget.phase_look(share.phase)
        name = share.phase if len(share.phase) <= 12 else phase_named(share.phase).short
        runs += [Run(look.letter, look.cell), widget.run(f" {fit(name, 12)}", "dim")]
        runs += [widget.run(f"{percent(share.share):>5}"), widget.run("   ")]
    return runs


def short_legend(widget: Lines, shares: Sequence[PhaseShare], cells: int) -> list[Run]:
    """Return as many phases as fit beside each other, the largest first."""
    runs: list[Run] = []
    for share in shares:
        look = widget.phase_look(share.phase)
        item = [
            Run(look.letter, look.cell),
            widget.run(f" {phase_named(share.phase).short} ", "dim"),
            widget.run(percent(share.share).removesuffix(" %")),
            widget.run("  "),
        ]
        cells -= sum(width(run.text) for run in item)
        if cells < 0:
            break
        runs += item
    return runs
