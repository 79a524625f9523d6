"""Trends of series that are read a minute and more apart, as those of old runs are once they were thinned."""

from __future__ import annotations

import pytest

from profd.daemon.analyze.trend import trend

READINGS = 60
MB = 1e6


@pytest.mark.parametrize("apart_s", [61.0, 120.0, 600.0])
def test_readings_minutes_apart_tell_growth_and_none(apart_s: float) -> None:
    """The windows that begin late hold a single one of them."""
    times_s = [number * apart_s for number in range(READINGS)]
    leak = trend(times_s, [number * MB for number in range(READINGS)], least_growth=MB)
    steady = trend(times_s, [500 * MB] * READINGS, least_growth=MB)
    assert leak is not None
    assert leak.is_growing
    assert leak.slope_per_s == pytest.approx(MB / apart_s)
    assert steady is not None
    assert not steady.is_growing
