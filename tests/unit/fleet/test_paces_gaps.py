"""Differences of means have the errors that textbooks give them, and bounds that hold as often as they say."""

from __future__ import annotations

import random

import pytest

from profd.daemon.fleet.paces import Gap, combined, gap, pooled_gap


def test_welch_by_hand() -> None:
    found = gap([3.0, 5.0], [1.0, 1.0, 4.0])
    assert found is not None
    assert found.value == 2.0
    assert found.error == pytest.approx((2 / 2 + 3 / 3) ** 0.5)
    assert found.freedom == int(2**2 / (1**2 / 1 + 1**2 / 2))


def test_a_single_value_is_judged_by_how_others_vary() -> None:
    found = pooled_gap([4.0], [1.0, 2.0, 3.0])
    assert found is not None
    assert (found.value, found.freedom) == (2.0, 2)
    assert found.error == pytest.approx((4 / 3) ** 0.5)


def test_too_few_values_tell_nothing() -> None:
    assert gap([1.0], [1.0, 2.0]) is None
    assert pooled_gap([1.0], [1.0, 2.0]) is None
    assert pooled_gap([], [1.0, 2.0, 3.0]) is None


def test_bounds_of_many_comparisons_are_wider() -> None:
    one = Gap(0.0, 1.0, 10)
    assert one.bounds(1) == pytest.approx((-2.228, 2.228), abs=1e-3)
    assert one.bounds(10)[1] == pytest.approx(3.581, abs=0.01)


def test_gaps_weigh_as_much_as_they_have_values() -> None:
    found = combined([Gap(1.0, 0.3, 4, 1.0), Gap(4.0, 0.6, 6, 2.0)])
    assert found.value == pytest.approx(3.0)
    assert found.error == pytest.approx((0.1**2 + 0.4**2) ** 0.5)
    assert found.freedom == int((0.01 + 0.16) ** 2 / (0.01**2 / 4 + 0.16**2 / 6))


@pytest.mark.parametrize("jobs", [1, 12])
def test_bounds_of_many_jobs_with_few_runs_hold(jobs: int) -> None:
    chance = random.Random(jobs)
    held = 0
    for _ in range(400):
        gaps = [pooled_gap([chance.gauss(0, 1)], [chance.gauss(0, 1) for _ in range(3)]) for _ in range(jobs)]
        low, high = combined([one for one in gaps if one is not None]).bounds(1)
        held += low <= 0 <= high
    assert held >= 370


def test_bounds_hold_as_often_as_they_say() -> None:
    chance = random.Random(7)
    held = 0
    for _ in range(400):
        found = gap([chance.gauss(0, 1) for _ in range(4)], [chance.gauss(0, 2) for _ in range(5)])
        assert found is not None
        low, high = found.bounds(1)
        held += low <= 0 <= high
    assert held >= 370
