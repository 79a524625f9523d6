"""What stands right of a strip of numbers: what it comes to, and a second number that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profd.daemon.render.cells import width
from profd.daemon.units import UNKNOWN, percent, rate, size
from profd.tui.drawing.cells import Run
from profd.tui.drawing.strips import sparkline, squeezed
from profd.tui.snapshot import Gauge
from profd.tui.timeline.gauges import GPU_MEMORY_SERIES, GPU_POWER_SERIES, GPU_SERIES
from profd.tui.timeline.pace import STEPS
from profd.tui.widgets.drawn import Lines

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
