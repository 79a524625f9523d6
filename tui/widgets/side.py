"""What is shown beside and below the strips of the timeline.

These are values, the legend of phases, marks and the time.
"""

from __future__ import annotations

from profd.daemon.analyze.phases import CHECKPOINT, STARTUP, phase_named
from profd.daemon.analyze.steps import part_of_step_s
from profd.daemon.events import Sign
from profd.daemon.render.plaintext import fit, visible
from profd.daemon.timerange import TimeRange
from profd.daemon.units import UNKNOWN, percent, rate, size, step_time, time_range
from profd.tui.cells import Run, cells_of
from profd.tui.columns import Ruler
from profd.tui.pace import STEPS
from profd.tui.scrub import Mark, Scrub
from profd.tui.series import GPU_MEMORY_SERIES, GPU_POWER_SERIES, GPU_SERIES
from profd.tui.snapshot import PhaseShares, Series, Snapshot
from profd.tui.view import shown_part
from profd.tui.widgets.linewidget import LineWidget

_SAVE_SHARE = 0.2
LABELS = {
    "cpu_cores": "CPU",
    "rss_bytes": "RSS",
    "host_cpu_share": "host CPU",
    GPU_SERIES: "GPU",
    GPU_MEMORY_SERIES: "GPU mem",
    STEPS: "steps",
}
_SHARES = ("host_cpu_share", GPU_SERIES)
# A little headroom: strips at their full height would run into each other.
_HEADROOM = 1.2


def columns_of(chosen: TimeRange | None, ruler: Ruler, columns: int) -> range:
    """Return the columns in which a range lies, none of no range or of one that is not shown."""
    if chosen is None:
        return range(0)
    first, last = ruler.column_of(chosen.from_ns), ruler.column_of(chosen.to_ns - 1) + 1
    return range(max(first, 0), max(min(last, columns), 0))


def _marks(snapshot: Snapshot) -> list[Mark]:
    """Return all marks of a snapshot, with those of checkpoints.

    The mark of a checkpoint is at the time at which the first rank begins to write it.
    """
    ruler, marks, was_saving = snapshot.timeline.ruler, [], False
    for row in snapshot.timeline.phase_rows[:1]:
        for column, mixture in enumerate(row.cells):
            is_saving = mixture.get(CHECKPOINT, 0.0) >= _SAVE_SHARE
            if is_saving and not was_saving:
                from_ns = ruler.from_ns + column * ruler.column_ns
                marks.append(Mark(Sign.SAVE, TimeRange(from_ns, from_ns + 1), "save"))
            was_saving = is_saving
    return [*marks, *snapshot.timeline.marks]


def mark_cells(snapshot: Snapshot, scrub: Scrub, columns: int) -> list[Run]:
    """Return the line of marks: the range in brackets, the cursor, what happened."""
    cells: list[Run] = [" "] * columns
    ruler = snapshot.timeline.ruler
    if scrub.has_range and (chosen := columns_of(scrub.chosen, ruler, columns)):
        for column in chosen:
            cells[column] = ("─", "accent")
        if scrub.from_ns is not None and scrub.from_ns >= ruler.from_ns:
            cells[chosen[0]] = ("[", "accent")
        if scrub.to_ns is not None and scrub.to_ns <= ruler.to_ns:
            cells[chosen[-1]] = ("]", "accent")
    for mark in _marks(snapshot):
        for column in columns_of(mark.time, ruler, columns):
            cells[column] = mark.sign.value
    for column in columns_of(scrub.cursor, ruler, columns):
        cells[column] = ("┃", "bright")
    return cells


def mark_side(snapshot: Snapshot, scrub: Scrub, cells: int) -> list[Run]:
    """Return the text of the marks under the cursor, else a legend of the marks.

    The legend is as much as fits into ``cells``.
    """
    ruler, marks, at = snapshot.timeline.ruler, _marks(snapshot), scrub.cursor
    found: list[Run] = []
    for mark in marks:
        if at is not None and mark.time.overlaps(at):
            glyph, style = mark.sign.value
            found.append((f"{glyph} {visible(mark.text)}  ", style))
    if found:
        return found
    for sign in dict.fromkeys(mark.sign for mark in marks if mark.time.overlaps(ruler.time)):
        glyph, style = sign.value
        name = sign.name.lower()
        cells -= len(f"{glyph} {name}")
        if cells >= 0:
            found += [(glyph, style), (f" {name}  ", "dim")]
        cells -= 2
    return found


def time_side(snapshot: Snapshot, scrub: Scrub, *, is_narrow: bool) -> list[Run]:
    """Return what is chosen, and whether the view goes on with the run."""
    chosen, info = scrub.chosen, snapshot.info
    live: list[Run] = [("live ▶", "good" if scrub.is_live else "faint")] if info.is_live else []
    if chosen is None:
        return [*([(f"{snapshot.view.name}   ", "accent")] if snapshot.view.span_ns else []), *live]
    first, last = time_range(*shown_part(chosen, snapshot.timeline.run))
    if scrub.has_range and scrub.to_ns is None and live:
        last = "now"
    if is_narrow:  # the hour is on the axis
        return [(f"{first[3:]}–{last[3:] or last}", "accent")]  # noqa: RUF001
    times = f"{first} – {last}"  # noqa: RUF001
    if scrub.has_range:
        times = f"[── {times} ──]"
    return [(f"{times}   ", "accent"), *live]


def top_of(series: Series) -> float:
    """Return the value at which a strip is full."""
    if series.name in _SHARES:
        return 1.0
    return series.limit or _HEADROOM * max(
        (cell for cell in series.cells if cell is not None), default=0.0
    )


def _amount(series: Series) -> str:
    if series.value is None:
        return UNKNOWN
    if series.name == STEPS:
        return rate(series.value)
    if series.name == GPU_POWER_SERIES:
        return f"{series.value:.0f} W"
    return size(series.value) if series.name.endswith("_bytes") else percent(series.value)


def side_of(series: Series, power: Series | None, cells: int) -> list[Run]:
    """Return the text right of a strip, in ``cells`` cells; ``power`` is that of the GPUs."""
    watts: list[Run] = [(f"  {_amount(power)}", "dim")] if power and power.value else []
    lead = [_amount(series), *_about(series)]
    # A cut text would be misread.
    choices = [*lead, *watts], [*lead[:1], *watts], lead[:1]
    return next((runs for runs in choices if cells_of(runs) <= cells), choices[-1])


def _about(series: Series) -> list[Run]:
    """Return what kind of value it is, its limit, and how fast memory grows per minute.

    If memory does not grow, say that it is steady.
    """
    runs: list[Run] = []
    if series.kind != "now" and series.value is not None:
        runs.append((f" {series.kind}", "dim"))
    if series.limit and series.value is not None:
        runs.append(f" of {size(series.limit)}")
    if series.is_growing and series.slope_per_s is not None:
        runs.append((f"  +{size(60 * series.slope_per_s)}/min", "warn"))
    elif series.slope_per_s is not None:
        runs.append(("  steady", "dim"))
    return runs


def _of_step(shares: PhaseShares, phase: str, per_s: float | None) -> str:
    """Return how long a step is in a phase; empty if that is unknown, or no part of a step."""
    known = None if phase == STARTUP else per_s
    seconds = part_of_step_s(shares[phase], shares.get(STARTUP, 0.0), known)
    return "" if seconds is None else step_time(seconds)


def tall_legend(
    widget: LineWidget, shares: PhaseShares, per_s: float | None, part: int, parts: int
) -> list[Run]:
    """Return a line of the legend beside a tall row.

    The legend is read down the first column, then the second. ``per_s`` is the rate of the steps.
    """
    runs: list[Run] = []
    for phase, share in list(shares.items())[part::parts][:2]:
        look, short = widget.phase_looks[phase], phase_named(phase).short
        name = fit(short, 6) if per_s else fit(phase if len(phase) <= 12 else short, 12)
        runs += [(look.letter, look.cell), (f" {name}", "dim")]
        runs += [f"{_of_step(shares, phase, per_s):>7}"] if per_s else []
        runs += [f"{percent(share):>6} " if per_s else f"{percent(share):>5}   "]
    return runs


def short_legend(
    widget: LineWidget,
    shares: PhaseShares,
    per_s: float | None,
    cells: int,
    most: int | None = None,
) -> list[Run]:
    """Return as many phases as fit beside each other, at most ``most``, the largest first."""
    runs: list[Run] = []
    for phase, share in list(shares.items())[:most]:
        look, name = widget.phase_looks[phase], phase_named(phase).short
        took = _of_step(shares, phase, per_s)
        item: list[Run] = [
            (look.letter, look.cell),
            (f" {name} ", "dim"),
            f"{took} " if took else "",
            f"{percent(share).removesuffix(' %')}  ",
        ]
        cells -= cells_of(item)
        if cells < 0:
            break
        runs += item
    return runs
