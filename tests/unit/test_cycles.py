"""Steps counted by the visits of a phase, in programs sampled at Poisson intervals."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profd.daemon.analyze.steps.cycles import Seen, count_cycles, expected_visits
from profd.daemon.clock import SECOND_NS

RATE_HZ = 100


def sampled(
    cycles: int, outside_s: float, inside_s: float, jitter: float, seed: int, rate_hz: float = RATE_HZ
) -> list[Seen]:
    """Return what is seen of so many cycles, each part of which is longer or shorter by up to ``jitter``."""
    chance = random.Random(seed)
    found: list[Seen] = []
    part_from_s, sample_s = 0.0, chance.expovariate(rate_hz)
    for part in range(2 * cycles):
        is_inside = part % 2 == 1
        part_to_s = part_from_s + (inside_s if is_inside else outside_s) * chance.uniform(1 - jitter, 1 + jitter)
        first_s, samples = sample_s, 0
        while sample_s < part_to_s:
            samples += 1
            sample_s += chance.expovariate(rate_hz)
        if samples:
            found.append(Seen(int(first_s * SECOND_NS), is_inside, samples))
        part_from_s = part_to_s
    return found


def test_long_visits_are_counted_exactly() -> None:
    counted = count_cycles(sampled(60, 0.4, 0.1, 0.0, 1))
    assert counted is not None
    assert counted.count == pytest.approx(60, abs=0.5)
    assert counted.error < 2


@pytest.mark.parametrize(("outside_s", "inside_s"), [(0.02, 0.02), (0.05, 0.01), (0.01, 0.1)])
def test_as_many_visits_are_seen_as_expected(outside_s: float, inside_s: float) -> None:
    cycles = 40_000
    seen = sampled(cycles, outside_s, inside_s, 0.0, 1)
    places = [interval.is_inside for interval in seen]
    visits = sum(now and not before for before, now in itertools.pairwise([False, *places]))
    inside = sum(interval.samples for interval in seen if interval.is_inside)
    outside = sum(interval.samples for interval in seen if not interval.is_inside)
    assert expected_visits(cycles, inside, outside) == pytest.approx(visits, rel=0.01)


def test_intervals_of_one_visit_are_one_visit() -> None:
    kinds = [False, True, True, False, False] * 30
    counted = count_cycles(Seen(100 * number, is_inside, 10) for number, is_inside in enumerate(kinds))
    assert counted is not None
    assert counted.count == pytest.approx(30, abs=0.1)


def test_visits_that_samples_miss_are_added() -> None:
    """The error is a bound that chance passes now and then: in one of twenty cases at most, and never by far."""
    cycles, off = 400, []
    for outside_s, inside_s in ((0.03, 0.1), (0.1, 0.05), (0.22, 0.02), (0.5, 0.015), (0.3, 0.2)):
        for seed in range(60):
            counted = count_cycles(sampled(cycles, outside_s, inside_s, 0.2, seed))
            assert counted is not None
            off.append(abs(counted.count - cycles) / counted.error)
    assert sum(one > 1 for one in off) <= len(off) / 20
    assert max(off) < 3


def test_an_evaluation_is_no_visits_that_were_missed() -> None:
    """Steps of 62 ms, 20 an epoch, and then what would be four of them, at half of the usual rate."""
    off = []
    for seed in range(30):
        seen: list[Seen] = []
        at_ns, chance = 0, random.Random(seed)
        for _ in range(12):
            epoch = sampled(20, 0.035, 0.027, 0.1, chance.randrange(1 << 30), RATE_HZ / 2)
            seen += (one._replace(start_ns=at_ns + one.start_ns) for one in epoch)
            at_ns += int(1.24 * SECOND_NS)
            seen.append(Seen(at_ns, is_inside=False, samples=12, is_aside=True))
            at_ns += SECOND_NS // 4
        counted = count_cycles(seen)
        assert counted is not None
        assert counted.took_ns == pytest.approx(at_ns, rel=0.05)
        off.append((counted.count - 240, counted.error))
    assert sum(abs(one) > error for one, error in off) <= 2
    assert abs(sum(one for one, _ in off) / len(off)) < 3


def held_up(cycles: int, share: float, seed: int) -> list[Seen]:
    """Return what is seen of steps of 55 ms in two parts, a share of which waits for a core for up to 0.1 s."""
    chance = random.Random(seed)
    found: list[Seen] = []
    to_s, sample_s = 0.0, chance.expovariate(RATE_HZ)
    for part in range(2 * cycles):
        to_s += (0.03, 0.025)[part % 2] * chance.uniform(0.95, 1.05)
        to_s += chance.uniform(0.02, 0.1) if chance.random() < share else 0.0
        first_s, samples = sample_s, 0
        while sample_s < to_s:
            samples += 1
            sample_s += chance.expovariate(RATE_HZ)
        if samples:
            found.append(Seen(int(first_s * SECOND_NS), part % 2 == 1, samples))
    return found


@pytest.mark.parametrize("share", [0.05, 0.1, 0.15])
def test_steps_that_are_held_up_are_not_counted_twice(share: float) -> None:
    for seed in range(20):
        counted = count_cycles(held_up(500, share, seed))
        assert counted is not None
        assert abs(counted.count - 500) <= counted.error < 150


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_steps_much_shorter_than_the_distance_of_samples_are_not_told(seed: int) -> None:
    assert count_cycles(sampled(3000, 0.004, 0.004, 0.2, seed)) is None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 0.8))
def test_long_runs_of_samples_by_chance_are_no_steps(seed: int, share: float) -> None:
    """A phase that is on or off for random times of a tenth of a second, as when a machine is short of CPU."""
    chance = random.Random(seed)
    at_s, seen = 0.0, []
    for part in range(1000):
        length_s = chance.expovariate(10) * (share if part % 2 else 1 - share) * 2
        seen.append(Seen(int(at_s * SECOND_NS), part % 2 == 1, max(round(length_s * RATE_HZ), 1)))
        at_s += length_s
    assert count_cycles(seen) is None


@pytest.mark.parametrize("kinds", ["", ".", "#", ".#" * 19, "#" * 500])
def test_a_few_visits_are_no_cycle(kinds: str) -> None:
    assert count_cycles(Seen(100 * number, kind == "#", 5) for number, kind in enumerate(kinds)) is None
