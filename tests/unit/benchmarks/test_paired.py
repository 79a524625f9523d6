"""Paired measurements: the mean ratio, its interval, and whether it is more than the null control."""

from __future__ import annotations

import math
import random

import pytest
from paired import distinguish, effect


def test_effect_and_interval_are_those_of_student() -> None:
    found = effect([(1.1, 1.0), (1.1 * 1.21, 1.1), (2.0, 2.0)])
    # The logarithms of 1.1, 1.21 and 1 have the mean log 1.1.
    assert found.percent == pytest.approx(10.0)
    assert (found.median_one, found.median_other) == (1.331, 1.1)
    found = effect([(math.exp(x), 1.0) for x in (0.0, 0.02, 0.04)])
    # Standard deviation 0.02 over three pairs, t of two degrees of freedom.
    half = 4.302653 * 0.02 / math.sqrt(3)
    assert found.low == pytest.approx(100 * math.expm1(0.02 - half))
    assert found.high == pytest.approx(100 * math.expm1(0.02 + half))
    with pytest.raises(ValueError, match="shorter"):
        distinguish([(1.0, 1.0), (1.0, 1.0)], [(1.0, 1.0)])


def test_interval_holds_the_truth_in_95_percent_of_experiments() -> None:
    chance = random.Random(7)
    held = 0
    for _ in range(2000):
        found = effect([(math.exp(chance.gauss(0.01, 0.02)), 1.0) for _ in range(10)])
        held += found.low <= 100 * math.expm1(0.01) <= found.high
    assert 0.935 <= held / 2000 <= 0.965


def test_an_effect_is_as_rare_as_the_random_choices_that_show_it() -> None:
    pairs = [(1.1 + 0.001 * number, 1.0) for number in range(10)]
    found = distinguish(pairs, [(1.0, 1.0)] * 10)
    assert found.p == 2 / 2**10
    assert str(found).startswith("distinguishable from the null control (difference +10.4")
    pairs = [(1.1, 1.0)] * 40
    # Only that choice is as extreme which leaves all as it was, and it is always among them: p is never 0.
    assert distinguish(pairs, [(1.0, 1.0)] * 40).p == 1 / 100_000


def test_noise_alone_is_called_distinguishable_once_in_twenty() -> None:
    chance = random.Random(3)

    def noise() -> list[tuple[float, float]]:
        return [(math.exp(chance.gauss(0, 0.03)), 1.0) for _ in range(8)]

    called = sum(distinguish(noise(), noise()).p < 0.05 for _ in range(1000))
    assert 25 <= called <= 75
