"""Whether a quantity stays flat: slope, growth, and the bounds that break."""

from __future__ import annotations

import pytest
import soak
from trend import Bound, Trend, take_trend

RISING = [(float(second), 100.0 + second / 360) for second in range(0, 3600, 5)]


def test_slope_is_told_by_the_hour_once_it_settled() -> None:
    trend = take_trend(RISING, settled_s=600)
    assert trend.per_hour == pytest.approx(10.0)
    # A quarter of 3,000 s is 750 s: the means of first and last lie 2,250 s apart.
    assert trend.growth == pytest.approx(2250 / 360, rel=0.01)
    readings = [(0.0, 900.0), (5.0, 500.0), *((float(second), 100.0) for second in range(600, 1200, 5))]
    assert take_trend(readings, settled_s=600) == Trend(per_hour=0.0, growth=0.0, highest=900.0)
    with pytest.raises(ValueError, match="no two readings after 600 s"):
        take_trend([(0.0, 1.0), (599.0, 1.0), (600.0, 1.0)], settled_s=600)


def test_bounds_break_one_by_one_and_a_soak_names_what_broke() -> None:
    trend = Trend(per_hour=3.0, growth=2.0, highest=160.0)
    assert Bound(highest=160.0, per_hour=3.0).breaches(trend) == []
    assert Bound(highest=150.0).breaches(trend) == ["160.0 is more than 150.0"]
    assert Bound(per_hour=2.0).breaches(trend) == ["grows by 3.0 an hour, more than 2.0"]
    assert Bound().breaches(trend) == []
    flat = [(float(second), 5.0) for second in range(0, 3600, 5)]
    readings = {quantity.name: flat for quantity in soak.QUANTITIES} | {"USS of the session": RISING}
    rows, broken = soak.judge(readings, settled_s=600)
    assert broken == ["USS of the session: grows by 10.0 an hour, more than 2.0"]
    assert [row for row in rows if "broken" in row] == [
        "| USS of the session | 109.99 MB | 6.25 MB | 10.00 MB | at most 2 more an hour: broken |"
    ]
    assert len(rows) == len(soak.QUANTITIES)


def test_spending_is_told_over_the_last_minute() -> None:
    spending = soak.Spending()
    assert spending.over_a_minute(5.0, 3.0) == pytest.approx(0.05)  # nothing was before the start
    steady = [spending.over_a_minute(float(at_s), 3.0 + (at_s - 5) * 0.1) for at_s in range(10, 600, 5)]
    assert max(steady) < 0.16
    assert steady[-1] == pytest.approx(0.1)
    assert spending.over_a_minute(600.0, 3.0 + 590 * 0.1 + 5.0) == pytest.approx(0.1 + 4.5 / 60)
