"""Steps counted by the visits of a phase, in programs sampled at Poisson intervals."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profd.daemon.analyze.cycles import count_cycles, expected_visits

RATE_HZ = 100


def sampled(cycles: int, outside_s: float, inside_s: float, jitter: float, seed: int) -> list[tuple[bool, int]]:
    """Return what is seen of so many cycles, each part of which is longer or shorter by up to ``jitter``."""
    chance = random.Random(seed)
    seen: list[tuple[bool, int]] = []
    debt_s = chance.expovariate(RATE_HZ)
    for part in range(2 * cycles):
        is_inside = part % 2 == 1
        length_s = (inside_s if is_inside else outside_s) * chance.uniform(1 - jitter, 1 + jitter)
        samples = 0
        while debt_s < length_s:
            samples += 1
            debt_s += chance.expovariate(RATE_HZ)
        debt_s -= length_s
        if samples:
            seen.append((is_inside, samples))
    return seen


def test_long_visits_are_counted_exactly() -> None:
    counted = count_cycles(sampled(60, 0.4, 0.1, 0.0, 1))
    assert counted is not None
    assert counted.count == pytest.approx(60, abs=0.5)
    assert counted.error < 2


@pytest.mark.parametrize(("outside_s", "inside_s"), [(0.02, 0.02), (0.05, 0.01), (0.01, 0.1)])
def test_as_many_visits_are_seen_as_expected(outside_s: float, inside_s: float) -> None:
    cycles = 40_000
    seen = sampled(cycles, outside_s, inside_s, 0.0, 1)
    places = [is_inside for is_inside, _ in seen]
    visits = sum(now and not before for before, now in itertools.pairwise([False, *places]))
    inside = sum(samples for is_inside, samples in seen if is_inside)
    outside = sum(samples for is_inside, samples in seen if not is_inside)
    assert expected_visits(cycles, inside, outside) == pytest.approx(visits, rel=0.01)


def test_intervals_of_one_visit_are_one_visit() -> None:
    counted = count_cycles([(False, 9), (True, 10), (True, 10), (False, 10), (False, 9)] * 10)
    assert counted is not None
    assert counted.count == pytest.approx(10, abs=0.1)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.03, 0.5), st.floats(0.015, 0.2), st.integers(0, 10_000))
def test_visits_that_samples_miss_are_added(outside_s: float, inside_s: float, seed: int) -> None:
    cycles = 400
    counted = count_cycles(sampled(cycles, outside_s, inside_s, 0.2, seed))
    assert counted is not None
    assert abs(counted.count - cycles) <= counted.error


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_steps_much_shorter_than_the_distance_of_samples_are_not_told(seed: int) -> None:
    assert count_cycles(sampled(3000, 0.004, 0.004, 0.2, seed)) is None


@pytest.mark.parametrize(
    "samples",
    [[], [(False, 50)], [(True, 500)], [(True, 5), (False, 5)] * 4],
)
def test_a_few_visits_are_no_cycle(samples: list[tuple[bool, int]]) -> None:
    assert count_cycles(samples) is None
