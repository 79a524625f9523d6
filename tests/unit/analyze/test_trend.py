"""What grows is called growing, with its slope, and what only looks like it is not."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from support.memorycurves import MB, STEADY, curve, still
from support.present import there

from profd.daemon.analyze.trend import LEAST_SPAN_S, trend

LEAST = 4 * MB


def growing(values: list[float]) -> bool:
    found = trend(range(len(values)), values, least_growth=LEAST)
    return found is not None and found.is_growing


@pytest.mark.parametrize("kind", STEADY)
def test_what_is_steady_is_not_called_growing(kind: str) -> None:
    """Among these are curves of nine kinds that seem to grow where a slope need not be sure."""
    for number in range(12):
        values = curve(STEADY[kind], f"{kind} {number}", 180)
        assert not any(growing(values[:seconds]) for seconds in (60, 60 + number % 120)), number


@pytest.mark.parametrize("rate", [1, 3, 10, 50])
def test_a_leak_is_called_growing_within_a_minute_with_its_slope(rate: int) -> None:
    for number in range(5):
        found = there(
            trend(range(60), curve(still, f"leak {number}", 60, rate * MB), least_growth=LEAST)
        )
        assert found.is_growing
        assert found.slope_per_s == pytest.approx(rate * MB, rel=0.1)


def test_intervals_hold_the_true_slope() -> None:
    """Five of these curves are beyond their intervals.

    `make truth` measures how many of all are.
    """
    rate, missed = 2 * MB, 0
    for number in range(40):
        values = curve(still, f"interval {number}", 60, rate, noise=3 * MB)
        found = there(trend(range(60), values, least_growth=LEAST))
        missed += not found.low_per_s <= rate <= found.high_per_s
        assert found.high_per_s - found.low_per_s < 0.2 * rate
    assert missed <= 5


@pytest.mark.parametrize("kind", ["warming", "epochs", "validations", "jump", "activations"])
def test_a_leak_beside_something_steady_is_found_in_time(kind: str) -> None:
    for number in range(4):
        values = curve(STEADY[kind], f"{kind} {number}", 900, 10 * MB)
        found = there(trend(range(900), values, least_growth=LEAST))
        assert found.is_growing, number
        assert found.slope_per_s == pytest.approx(10 * MB, rel=0.1)


def test_growth_that_begins_late_is_found_and_dated() -> None:
    values = [1e9] * 900 + [1e9 + 2 * MB * at_s for at_s in range(100)]
    found = there(trend(range(1000), values, least_growth=LEAST))
    assert found.is_growing
    assert found.slope_per_s == pytest.approx(2 * MB, rel=0.01)
    assert found.start_s >= 900


LONG_EPOCHS = [1e9 + 3 * MB * (at_s % 200) for at_s in range(1000)]
SLOW_CURVE = [1e9 + 3000 * MB * (1 - math.exp(-at_s / 300)) for at_s in range(2400)]


def drifting(period_s: float) -> list[float]:
    return [1e9 + 500 * MB * (at_s / period_s % 1) for at_s in range(180)]


@pytest.mark.parametrize(
    ("values", "lengths_s"),
    [
        pytest.param(
            [1e9 + 2 * MB * min(at_s, 200) for at_s in range(300)],
            [300],
            id="growth that has ended",
        ),
        pytest.param(LONG_EPOCHS, range(240, 1000, 20), id="long epochs once one is over"),
        pytest.param(
            curve(STEADY["warming"], "slow", 600), range(60, 600, 10), id="a curve that flattens"
        ),
        *(
            pytest.param(drifting(period_s), range(60, 180, 5), id=f"epochs of {period_s} s")
            for period_s in (2.99, 3.98, 4.97, 5.98, 6.97, 8.99)
        ),
        pytest.param(SLOW_CURVE, range(500, 2400, 50), id="the tail of a slow curve"),
        *(
            pytest.param(
                [1e9 + 100 * MB * (at_s * steps // 90) for at_s in range(90)],
                [90],
                id=f"{steps} even steps",
            )
            for steps in (2, 4, 6, 8)
        ),
        pytest.param(
            [1e9 + 0.05 * MB * at_s for at_s in range(60)], [60], id="less than is asked for"
        ),
    ],
)
def test_what_seems_to_grow_is_no_growth(values: list[float], lengths_s: Iterable[int]) -> None:
    assert not any(growing(values[:seconds]) for seconds in lengths_s)


def test_growth_is_known_while_it_lasts_and_once_it_is_as_much_as_is_asked_for() -> None:
    assert growing([1e9 + 2 * MB * at_s for at_s in range(190)])
    assert growing([1e9 + 0.05 * MB * at_s for at_s in range(120)])


def test_steady_has_an_interval_too_and_holes_and_days_are_no_error() -> None:
    found = there(trend(range(300), curve(still, "steady", 300), least_growth=LEAST))
    assert not found.is_growing
    assert found.low_per_s <= 0 <= found.high_per_s
    times_s = [*range(20), *range(5000, 5010)]
    assert trend(times_s, [1e9] * len(times_s), least_growth=LEAST) is None
    times_s = [at_s for at_s in range(100) if at_s % 7]
    found = there(trend(times_s, [2 * MB * at_s for at_s in times_s], least_growth=LEAST))
    assert found.slope_per_s == pytest.approx(2 * MB)
    values = [1e9 + 100 * at_s + (at_s * 7919 % 13) * MB for at_s in range(200_000)]
    found = there(trend(range(200_000), values, least_growth=LEAST))
    assert found.is_growing
    assert found.slope_per_s == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("seconds", [0, 1, 10, int(LEAST_SPAN_S)])
def test_too_short_a_series_says_nothing(seconds: int) -> None:
    assert (
        trend(range(seconds), [1e9 + MB * at_s for at_s in range(seconds)], least_growth=LEAST)
        is None
    )


READINGS = 60


@pytest.mark.parametrize("apart_s", [61.0, 120.0, 600.0])
def test_readings_minutes_apart_tell_growth_and_none(apart_s: float) -> None:
    """The windows that begin late hold a single one of them."""
    times_s = [number * apart_s for number in range(READINGS)]
    leak = there(trend(times_s, [number * MB for number in range(READINGS)], least_growth=MB))
    assert leak.is_growing
    assert leak.slope_per_s == pytest.approx(MB / apart_s)
    assert not there(trend(times_s, [500 * MB] * READINGS, least_growth=MB)).is_growing


def test_an_end_without_a_step_has_no_slope_on_an_axis_of_steps() -> None:
    times_s = [*map(float, range(300)), *[1000.0] * 300]
    assert trend(times_s, [MB * at for at in range(600)], least_growth=MB) is None
