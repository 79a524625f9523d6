"""What an integer has to show to be taken for a counter."""

from __future__ import annotations

import itertools
import random

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.counter import Place
from profd.daemon.collect.steps.evidence import is_paced, order_bits, pace_bits, pace_per_s, paced_chain
from profd.daemon.collect.steps.growth import Growth, growth_of
from profd.daemon.collect.steps.sightings import Sighting, Variable

COUNTER = Variable(Place(1, "train", "train.py"), "i")


def track(values: list[int], *, error_s: float = 0.03) -> list[Sighting]:
    return [
        Sighting(int(0.5 * number * SECOND_NS), int(error_s * SECOND_NS), value, 20, number)
        for number, value in enumerate(values)
    ]


def growth(values: list[int]) -> Growth | None:
    return growth_of(COUNTER, {COUNTER: track(values)}, len(values), -50_000 * SECOND_NS)


def by(rises: list[int]) -> list[int]:
    return [sum(rises[:number]) for number in range(len(rises) + 1)]


# The last 9 rises are looked at: of 100 each, but for some of 1.
@pytest.mark.parametrize(("odd", "is_counter"), [(0, True), (2, True), (3, False), (4, False)])
def test_a_counter_grows_steadily_three_times_out_of_four(odd: int, is_counter: bool) -> None:
    rises = [100] * 9
    for number in range(odd):
        rises[2 * number] = 1
    assert (growth(by(rises)) is not None) == is_counter


def test_growth_is_measured_without_torn_values_at_its_beginning() -> None:
    found = growth([3, *range(1000, 2200, 100)])
    assert found is not None
    assert found.sightings[0].value >= 1000
    assert found.rate_per_s == pytest.approx(200, rel=0.1)


def test_order_says_less_the_more_is_left_out_of_it() -> None:
    assert order_bits(10, 0) == pytest.approx(21.8, abs=0.1)
    # There are eleven ways to leave one of eleven out.
    assert order_bits(10, 1) == pytest.approx(order_bits(10, 0) - 3.46, abs=0.01)


def test_pace_is_evidence_though_the_counter_starts_over() -> None:
    values = [0, 100, 200, 300, 20, 120, 220, 320, 40, 140]
    seen = track(values)
    pairs = list(itertools.pairwise(seen))
    assert pace_per_s(pairs) == pytest.approx(200)
    assert pace_bits(200.0, pairs) > 5
    assert not is_paced(200.0, seen[3], seen[4])


@pytest.mark.parametrize("most", [3, 20, 1000, 10**6])
def test_chance_gives_no_evidence_of_pace(most: int) -> None:
    chance = random.Random(most)
    for _ in range(300):
        seen = track([chance.randrange(most) for _ in range(12)])
        pairs = list(itertools.pairwise(seen))
        assert pace_bits(pace_per_s(pairs), pairs) < 15


# As read of a loop of 400 steps a second, at these seconds.
READ = [
    *((0.0, 2027), (0.3, 2133), (0.6, 65536), (1.0, 262144), (1.5, 65536), (1.9, 65536), (2.4, 2728), (3.0, 65536)),
    *((3.4, 3001), (4.4, 3263), (5.7, 3625), (7.0, 65536), (8.5, 4200)),
]


def test_a_chain_leaves_out_the_half_that_is_torn() -> None:
    seen = [Sighting(int(at_s * SECOND_NS), 10_000_000, value, 20, k) for k, (at_s, value) in enumerate(READ)]
    chain = paced_chain(seen)
    assert chain.bits > 16
    assert {one.value for one in chain.sightings} <= {2027, 2133, 2728, 3001, 3263, 3625, 4200}
    assert paced_chain(seen[:7]).bits < 16


@pytest.mark.parametrize("most", [3, 20, 1000, 10**6])
def test_chance_makes_no_chain(most: int) -> None:
    chance = random.Random(most)
    for _ in range(100):
        evenly = [chance.randrange(most) for _ in range(20)]
        of_all_orders = [int(most ** chance.random()) for _ in range(20)]
        assert max(paced_chain(track(evenly)).bits, paced_chain(track(of_all_orders)).bits) < 16


def test_what_stands_is_no_chain() -> None:
    assert paced_chain(track([65536] * 12)).bits == 0


def test_a_value_that_hardly_moves_is_no_evidence() -> None:
    seen = track([3, 3, 3, 4, 4, 4, 3, 4, 4, 3])
    pairs = list(itertools.pairwise(seen))
    assert pace_bits(pace_per_s(pairs), pairs) == 0


def test_what_is_left_out_as_torn_is_no_change() -> None:
    """A counter may have changed from each sighting to the next, and not more often than that."""
    found = growth([700, 900, *range(1000, 1800, 100)])
    assert found is not None
    assert found.sightings[0].value >= 900
    assert found.change_share < 1
