from __future__ import annotations

import random

import pytest

from profd.daemon.analyze.confidence import median_interval, student_95, t_quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [
        *(
            (0.975, 1, 12.7062),
            (0.975, 2, 4.30265),
            (0.995, 5, 4.03214),
            (0.9995, 11, 4.43698),
            (0.999875, 3, 20.604),
        ),
        *((0.975, 199, 1.97196), (0.975, 200, 1.97190), (0.999, 500, 3.10661)),
    ],
)
def test_the_quantiles_are_student_s(probability: float, freedom: int, expected: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-5)


def test_few_values_tell_less() -> None:
    reach = [student_95(freedom) for freedom in (1, 2, 10, 100, 1000, 100_000)]
    assert reach == sorted(reach, reverse=True)
    assert reach[-1] == pytest.approx(1.96, abs=0.001)


def test_an_interval_of_the_median_holds_it_95_times_in_100() -> None:
    chance = random.Random(6)
    held = 0
    for _ in range(2000):
        low, high = median_interval([chance.expovariate(1.0) for _ in range(12)])
        held += low <= 0.6931 <= high

    assert held >= 0.95 * 2000
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([7.0]) == (7.0, 7.0)
    chance = random.Random(7)
    few, many = ([chance.gauss(0, 1) for _ in range(count)] for count in (20, 2000))
    widths = [high - low for low, high in (median_interval(few), median_interval(many))]

    assert widths[1] == pytest.approx(2 * 1.96 * 1.2533 / 2000**0.5, rel=0.3)
    assert widths[1] < widths[0] / 3
