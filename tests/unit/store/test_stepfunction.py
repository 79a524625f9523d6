"""How long a reading holds, and what a series was over a range of time."""

from __future__ import annotations

import random

import pytest

from profd.daemon.store.rows import PointRow
from profd.daemon.store.stepfunction import (
    Aggregate,
    StepBuilder,
    StepFunction,
    mean_function,
    step_function,
    sum_aggregates,
)


def function(*readings: tuple[int, float]) -> StepFunction:
    return step_function([PointRow(at, value) for at, value in readings])


def spans(one: StepFunction) -> list[tuple[int, int, float]]:
    return [(step.start_ns, step.end_ns, step.value) for step in one.steps]


def test_a_reading_holds_for_the_time_since_the_one_before() -> None:
    mean, known_ns = function((10, 9.0), (20, 1.0), (30, 3.0)).mean(15, 30)
    assert mean == pytest.approx(7 / 3)
    assert known_ns == 15


def test_the_first_reading_holds_as_long_as_the_second_one() -> None:
    assert spans(function((10, 9.0), (14, 1.0), (24, 1.0))) == [(6, 10, 9.0), (10, 14, 1.0), (14, 24, 1.0)]


def test_after_the_last_reading_nothing_is_known() -> None:
    one = function((10, 9.0), (20, 1.0))
    assert [one.mean(*span) for span in ((-10, 0), (20, 30), (15, 25))] == [(0.0, 0), (0.0, 0), (1.0, 5)]


def test_after_a_pause_a_reading_holds_for_three_distances() -> None:
    one = function((0, 1.0), (10, 1.0), (20, 1.0), (100, 5.0))
    assert one.mean(20, 100) == (5.0, 30)
    assert one.mean(20, 70) == (0.0, 0)


def test_a_series_that_is_read_seldom_has_no_gaps() -> None:
    one = function(*((60 * minute, 1.0) for minute in range(10)))
    assert one.over(0, 540) == Aggregate(540, 540.0, 1.0, 1.0)


def test_a_series_that_is_read_less_often_from_now_on_is_known_again() -> None:
    one = function(*((at, 1.0) for at in (*range(0, 100, 10), *range(200, 1100, 100))))
    begins = [step.start_ns for step in one.steps if step.end_ns >= 200]
    assert begins == [170, 270, 370, 470, 500, 600, 700, 800, 900]


def test_a_single_reading_is_known_at_its_moment() -> None:
    one = function((10, 4.0))
    assert (one.period_ns, spans(one)) == (None, [(10, 10, 4.0)])
    assert one.over(0, 20) == Aggregate(0, 0.0, 4.0, 4.0)
    assert one.over(0, 20).mean == 4.0
    assert one.over(11, 20) == Aggregate()
    assert one.over(11, 20).mean is None


def test_a_range_has_the_mean_the_least_and_the_most_of_what_held_in_it() -> None:
    one = function((0, 9.0), (10, 2.0), (20, 5.0), (30, 8.0))
    assert one.over(5, 20) == Aggregate(15, 2.0 * 5 + 5.0 * 10, 2.0, 5.0)
    assert one.over(5, 20).mean == 4.0
    assert sum_aggregates([one.over(5, 12), one.over(12, 20)]) == one.over(5, 20)
    assert sum_aggregates([]) == Aggregate()


def test_readings_out_of_order_say_nothing_more() -> None:
    assert spans(function((0, 1.0), (10, 2.0), (10, 7.0), (5, 7.0), (20, 3.0))) == spans(
        function((0, 1.0), (10, 2.0), (20, 3.0))
    )


def test_a_part_of_a_series_says_of_its_time_what_all_of_it_does() -> None:
    """Ten readings before a range and two after it are enough, whatever their distances."""
    chance = random.Random(7)
    readings, at = [], 0
    for _ in range(300):
        at += chance.choice((1, 1, 1, 2, 5, 40))
        readings.append((at, chance.random()))
    whole = function(*readings)
    for _ in range(200):
        from_ns, length = chance.randrange(-5, at), chance.randrange(1, 60)
        before = [one for one in readings if one[0] <= from_ns][-10:]
        inside = [one for one in readings if from_ns < one[0] < from_ns + length]
        after = [one for one in readings if one[0] >= max(from_ns + length, from_ns + 1)][:2]
        part = function(*before, *inside, *after)
        assert part.over(from_ns, from_ns + length) == whole.over(from_ns, from_ns + length)


def test_readings_that_come_one_by_one_say_the_same() -> None:
    builder = StepBuilder()
    assert builder.add(10, 1.0) == ()
    other = builder.copy()
    assert [step.start_ns for step in builder.add(14, 2.0)] == [6, 10]
    assert builder.add(14, 3.0) == ()
    assert builder.close() == ()
    # What was copied has not seen the second reading.
    assert [step.end_ns for step in other.close()] == [10]


def test_where_holds_covers_known_time_alone() -> None:
    cover = function((0, 1.0), (10, 0.0), (20, 1.0), (30, 0.0), (1000, 0.0)).where(lambda value: value == 0)
    assert list(cover.ranges()) == [(0, 10), (20, 30), (970, 1000)]


def test_the_mean_of_functions_is_of_those_that_are_known() -> None:
    mean = mean_function([function((0, 0.0), (10, 1.0), (20, 1.0)), function((15, 0.0), (20, 0.5))])
    assert spans(mean) == [(-10, 0, 0.0), (0, 10, 1.0), (10, 15, 0.5), (15, 20, 0.75)]
    assert mean.period_ns == 10
