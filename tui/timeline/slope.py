"""How a gauge of memory goes on: by the strip that is drawn of it, so that what is said is what is seen."""

from __future__ import annotations

from msgspec.structs import replace

from profd.daemon.analyze.memory.growth import LEAST_GROWTH_BYTES, LEAST_GROWTH_SHARE
from profd.daemon.analyze.memory.trend import trend
from profd.daemon.clock import SECOND_NS
from profd.tui.snapshot import Gauge
from profd.tui.timeline.bins import Ruler

SLOPED = "rss_bytes"


def with_slope(gauge: Gauge, ruler: Ruler) -> Gauge:
    """Return a gauge of memory with its slope, where its strip is long enough to tell one; others as they are."""
    if gauge.name != SLOPED:
        return gauge
    seen = [(number, cell) for number, cell in enumerate(gauge.cells) if cell is not None]
    times_s = [(ruler.from_ns + (number + 0.5) * ruler.column_ns) / SECOND_NS for number, _ in seen]
    values = [cell for _, cell in seen]
    least = max(LEAST_GROWTH_BYTES, LEAST_GROWTH_SHARE * max(values, default=0.0))
    found = trend(times_s, values, least_growth=least) if values else None
    if found is None:
        return gauge
    return replace(gauge, slope_per_s=found.slope_per_s, is_growing=found.is_growing)
