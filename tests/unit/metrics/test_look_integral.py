"""A series added up over time, with its mean over the last seconds."""

from __future__ import annotations

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.look import Integral
from profd.daemon.store.rows import PointRow


def points(*readings: tuple[float, float]) -> list[PointRow]:
    return [PointRow(round(at_s * SECOND_NS), value) for at_s, value in readings]


def test_each_value_counts_for_as_long_as_it_holds() -> None:
    integral = Integral(0)
    integral.add(points((1, 4.0)))
    integral.add(points((2, 1.0), (4, 3.0)))

    assert integral.newest_ns == 4 * SECOND_NS
    assert integral.total_s == 4.0 + 1.0 + 2 * 3.0


def test_a_gap_counts_as_three_distances() -> None:
    integral = Integral(0)
    integral.add(points(*((float(second), 1.0) for second in range(1, 11)), (111, 1.0)))

    assert integral.total_s == 10 + 3
    assert integral.mean(112 * SECOND_NS) == 1.0
    assert integral.mean(200 * SECOND_NS) is None


def test_the_mean_is_that_of_the_last_ten_seconds() -> None:
    integral = Integral(0)
    integral.add(points((4, 0.0), (8, 1.0), (12, 0.5)))

    # Of the value that holds from 4 to 8 all counts, of the one before it only the part from 2 on.
    assert integral.mean(12 * SECOND_NS) == pytest.approx((2 * 0.0 + 4 * 1.0 + 4 * 0.5) / 10)


def test_what_held_before_it_began_is_left_out() -> None:
    integral = Integral(10 * SECOND_NS)
    integral.add(points((10.5, 1.0), (11.5, 1.0)))

    assert integral.total_s == 1.5
