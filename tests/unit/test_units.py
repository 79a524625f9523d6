from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

import pytest
from support.folders import DATA

from profd.daemon import units
from profd.daemon.clock import SECOND_NS
from profd.daemon.units import (
    clock,
    difference,
    elapsed,
    moment,
    percent,
    quantity,
    rounded_percent,
    time_range,
    times,
)

CASES = [
    pytest.param(name, given, text, id=f"{name}-{given}")
    for name, cases in json.loads((DATA / "units.json").read_text()).items()
    for given, text in cases
]
AT_NS = int(datetime(2026, 11, 20, 12, 0, 5).timestamp()) * SECOND_NS


@pytest.mark.parametrize(("name", "given", "text"), CASES)
def test_numbers_are_written_as_in_the_report(name: str, given: Any, text: str) -> None:  # noqa: ANN401  JSON
    words = given if isinstance(given, list) else [given, 1] if name == "percent" else [given]
    assert getattr(units, name)(*words) == text


def test_shares_gains_and_differences_keep_what_matters() -> None:
    assert (percent(1.0), percent(0.999), percent(0.9999, 1)) == ("100 %", "99 %", "99.9 %")
    assert (percent(0.0), percent(0.001), percent(0.0001, 1)) == ("0 %", "<1 %", "<0.1 %")
    assert (percent(2.125), percent(None)) == ("212 %", "-")
    assert [times(gain) for gain in (1.042, 1.094, 1.096, 2.44, 12.0)] == [
        "1.04×",  # noqa: RUF001
        "1.09×",  # noqa: RUF001
        "1.1×",  # noqa: RUF001
        "2.4×",  # noqa: RUF001
        "12.0×",  # noqa: RUF001
    ]
    assert [quantity(*given) for given in ((1.5, "cores"), (12000, "times"), (4, ""))] == [
        "1.50 cores",
        "12,000 times",
        "4",
    ]
    assert (difference(0.0, "share"), difference(-2e9, "bytes/s")) == ("+0.0 pts", "-2.0 GB/s")


@pytest.mark.parametrize(
    ("share", "around", "text"),
    [
        (0.37, 0.06, "35 %"),
        (0.38, 0.06, "40 %"),
        (0.374, 0.049, "37 %"),
        (0.374, 0.0, "37 %"),
        (0.34, 0.12, "30 %"),
        (0.02, 0.06, "2 %"),  # never rounded to nothing
        (0.98, 0.06, "98 %"),  # nor to all
    ],
)
def test_a_share_is_rounded_to_what_its_interval_allows(
    share: float, around: float, text: str
) -> None:
    assert rounded_percent(share, around) == text


def test_times_are_in_the_zone_of_the_reader_with_days_and_tenths_where_needed() -> None:
    assert elapsed(761 * SECOND_NS) == "00:12:41"
    assert elapsed(2 * 86_400 * SECOND_NS + 3_600 * SECOND_NS) == "2 d 01:00:00"
    assert elapsed(-1) == "00:00:00"
    assert moment(AT_NS).startswith("2026-11-20 12:00:05 ")
    assert clock(AT_NS) == "12:00:05"
    assert clock(10**30) == "-"
    assert time_range(AT_NS, AT_NS + 5 * SECOND_NS) == ("12:00:05", "12:00:10")
    assert time_range(AT_NS, AT_NS + SECOND_NS // 2) == ("12:00:05.0", "12:00:05.5")


ODD = (-0.0, 1e-320, 1e18, 1e308, -1e308, math.inf, -math.inf, math.nan)
"""A damaged run file may have any of these, or sums that come to them."""


@pytest.mark.parametrize("value", ODD)
def test_any_number_can_be_written(value: float) -> None:
    for written in (units.number, units.about, units.times, units.percent, units.signed_percent,
                    units.rate, units.size, units.duration, units.step_time):  # fmt: skip
        assert written(value)
    assert units.rounded_percent(value, 0.1)
    assert units.rounded_percent(0.5, value)
    for unit in ("share", "bytes", "bytes/s", "s/step", "threads"):
        assert units.quantity(value, unit)
        assert units.difference(value, unit)
