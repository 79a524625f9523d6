"""Bins that run out: neighbors are merged, and each lies where it lay."""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS
from profd.tui.bins import MOST_BINS, Ruler, TimeBins

ORIGIN_NS = 1_000 * SECOND_NS


def test_bins_that_were_merged_twice_still_lie_at_their_time() -> None:
    bins = TimeBins(ORIGIN_NS, SECOND_NS)
    bins.add("early", ORIGIN_NS, ORIGIN_NS + 8 * SECOND_NS, value=0.5)
    end_ns = ORIGIN_NS + 4 * MOST_BINS * SECOND_NS
    bins.add("late", end_ns - 8 * SECOND_NS, end_ns)

    assert bins.width_ns == 4 * SECOND_NS
    columns = bins.columns(Ruler(ORIGIN_NS, 4 * SECOND_NS, MOST_BINS))
    found = {
        number: {key: (weight.length_ns, weight.area / weight.length_ns) for key, weight in column.items()}
        for number, column in enumerate(columns)
        if column
    }
    early, late = {"early": (4 * SECOND_NS, 0.5)}, {"late": (4 * SECOND_NS, 1.0)}
    assert found == {0: early, 1: early, MOST_BINS - 2: late, MOST_BINS - 1: late}
