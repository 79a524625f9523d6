"""Steps counted by the visits of a phase, in programs sampled at Poisson intervals."""

from __future__ import annotations

import pytest
from support.phasevisits import evaluated, held_up, on_and_off, sampled

from profd.daemon.analyze.steps import Seen, count_cycles


def test_long_visits_are_counted_exactly() -> None:
    counted = count_cycles(sampled(60, 0.4, 0.1, 0.0, 1))
    assert counted is not None
    assert counted.count == pytest.approx(60, abs=0.5)
    assert counted.error < 2


def test_intervals_of_one_visit_are_one_visit() -> None:
    kinds = [False, True, True, False, False] * 30
    counted = count_cycles(Seen(100 * number, is_inside) for number, is_inside in enumerate(kinds))
    assert counted is not None
    assert counted.count == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("outside_s", "inside_s"), [(0.03, 0.1), (0.1, 0.05), (0.22, 0.02), (0.5, 0.015), (0.3, 0.2)])
def test_visits_that_samples_miss_are_added(outside_s: float, inside_s: float, seed: int) -> None:
    counted = count_cycles(sampled(400, outside_s, inside_s, 0.2, seed))
    assert counted is not None
    assert abs(counted.count - 400) <= counted.error


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_evaluation_is_no_visits_that_were_missed(seed: int) -> None:
    seen, took_ns = evaluated(seed)
    counted = count_cycles(seen)
    assert counted is not None
    assert counted.took_ns == pytest.approx(took_ns, rel=0.05)
    assert abs(counted.count - 240) <= counted.error


@pytest.mark.parametrize("share", [0.05, 0.1, 0.15])
def test_steps_that_are_held_up_may_be_two_and_the_error_says_so(share: float) -> None:
    counted = count_cycles(held_up(500, share, seed=1))
    assert counted is not None
    assert abs(counted.count - 500) <= counted.error < 250


def test_visits_of_which_a_third_is_missed_tell_nothing() -> None:
    assert count_cycles(sampled(400, 0.035, 0.01, 0.1, 1)) is None


def test_steps_much_shorter_than_the_distance_of_samples_are_not_told() -> None:
    assert count_cycles(sampled(3000, 0.004, 0.004, 0.2, 1)) is None


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_long_runs_of_samples_by_chance_are_no_steps(share: float) -> None:
    assert count_cycles(on_and_off(share, seed=1)) is None


@pytest.mark.parametrize("kinds", ["", ".", "#", ".#" * 19, "#" * 500])
def test_a_few_visits_are_no_cycle(kinds: str) -> None:
    assert count_cycles(Seen(100 * number, kind == "#") for number, kind in enumerate(kinds)) is None
