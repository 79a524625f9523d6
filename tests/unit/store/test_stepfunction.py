"""Series as functions of time: what a reading tells, and of when."""

from __future__ import annotations

import pytest

from profd.daemon.store.rows import PointRow
from profd.daemon.store.stepfunction import StepFunction, mean_function, step_function


def track(*readings: tuple[int, float]) -> StepFunction:
    return step_function([PointRow(at, value) for at, value in readings])


def test_a_reading_tells_of_the_time_since_the_one_before() -> None:
    mean, known_ns = track((10, 9.0), (20, 1.0), (30, 3.0)).mean(15, 30)
    assert mean == pytest.approx(7 / 3)
    assert known_ns == 15


def test_what_no_reading_tells_of_is_unknown() -> None:
    one = track((10, 9.0), (20, 1.0))
    assert [one.mean(*span) for span in ((0, 10), (20, 30), (5, 15))] == [(0.0, 0), (0.0, 0), (1.0, 5)]


def test_after_a_pause_a_reading_tells_of_three_periods() -> None:
    one = track((0, 1.0), (10, 1.0), (20, 1.0), (100, 5.0))
    assert one.mean(20, 100) == (5.0, 30)
    assert one.mean(20, 70) == (0.0, 0)


def test_one_reading_tells_nothing() -> None:
    one = track((10, 1.0))
    assert (one.period_ns, list(one.steps)) == (None, [])


def test_where_holds_covers_known_time_alone() -> None:
    cover = track((0, 0.0), (10, 0.0), (20, 1.0), (30, 0.0), (1000, 0.0)).where(lambda value: value == 0)
    assert list(cover.ranges()) == [(0, 10), (20, 30), (970, 1000)]


def test_the_mean_of_tracks_is_of_those_that_are_known() -> None:
    mean = mean_function([track((0, 0.0), (10, 1.0), (20, 1.0)), track((10, 0.0), (15, 0.0), (20, 0.5))])
    assert [(step.start_ns, step.end_ns, step.value) for step in mean.steps] == [
        (0, 10, 1.0),
        (10, 15, 0.5),
        (15, 20, 0.75),
    ]
    assert mean.period_ns == 10
