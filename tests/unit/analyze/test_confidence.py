from __future__ import annotations

import pytest

from profd.daemon.analyze.confidence import student_95, t_quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [
        *((0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.995, 5, 4.03214), (0.9995, 11, 4.43698), (0.999875, 3, 20.604)),
        *((0.975, 199, 1.97196), (0.975, 200, 1.97190), (0.999, 500, 3.10661)),
    ],
)
def test_the_quantiles_are_student_s(probability: float, freedom: int, expected: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-5)


def test_few_values_tell_less() -> None:
    reach = [student_95(freedom) for freedom in (1, 2, 10, 100, 1000, 100_000)]
    assert reach == sorted(reach, reverse=True)
    assert reach[-1] == pytest.approx(1.96, abs=0.001)
