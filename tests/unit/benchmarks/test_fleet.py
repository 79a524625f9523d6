"""What the benchmark of fleets writes of its measurements."""

from __future__ import annotations

import msgspec
from fleet import Measured, growth, is_right, table
from fleetgen import Truth

from profd.daemon.fleet.answers import Fleet, Hours, PhaseCost

ONE = Measured(1_000_000, 20_000_000, 5.0, 2.0, 150_000_000, 3.0, True, True)
TEN = ONE._replace(rows=10_000_000, took_s=20.0, is_identical=False)


def test_growth_is_the_power_of_the_rows_and_what_does_not_hold_stands_out() -> None:
    assert growth([ONE, TEN]) == "1.00"
    assert growth([ONE, TEN._replace(took_s=2.0)]) == "0.00"
    rows = table([ONE, TEN])
    assert rows[2] == "| 1,000,000 | 20 MB | 5 s | 2.0 s | 150 MB | 3.0 s | yes | yes |"
    assert rows[3].endswith("| **no** | yes |")


def test_an_answer_is_right_when_what_was_planted_is_named() -> None:
    none = Hours(0, 0, 0, 0, 0)
    fleet = Fleet(1, "", "", 1, 1, 1, 7, none, (PhaseCost("data wait", none, 1),), (), (), (), (), 0, (), ())
    truth = Truth(7, 1, "node-1", "job-1", "data wait", "data wait", {})
    assert not is_right(fleet, truth)
    assert not is_right(fleet, msgspec.structs.replace(truth, cause="forward"))
