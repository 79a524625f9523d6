"""When readings are taken: as soon as is wished for, within what they may cost."""

from __future__ import annotations

import random

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.cadence import CAPITAL_S, EARNED_SHARE, JITTER, Cadence, Wish

COST_S = 0.02
URGENT, ROUTINE = Wish(0.5, is_urgent=True), Wish(5.0, is_urgent=False)


class Steady(random.Random):
    """A chance that always takes the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def after(readings: int, *, every_s: float = 0.0) -> Cadence:
    cadence = Cadence(Steady())
    for number in range(readings):
        cadence.spend(int(number * every_s * SECOND_NS), int(COST_S * SECOND_NS))
    return cadence


def test_what_can_be_afforded_is_read_when_it_is_wished_for() -> None:
    assert after(1).pause_s(URGENT) == 0.5
    assert after(1).pause_s(ROUTINE) == 5.0


def test_what_is_spent_has_to_be_earned_first() -> None:
    # Nine readings were all there was; the tenth takes ten seconds to earn.
    assert after(9).pause_s(URGENT) == pytest.approx(COST_S / EARNED_SHARE)


def test_routine_leaves_something_for_what_is_urgent() -> None:
    assert after(6).pause_s(URGENT) == 0.5
    assert after(6).pause_s(ROUTINE) > 5.0


def test_routine_waits_no_longer_than_its_own_cost_asks_for() -> None:
    assert after(9).pause_s(ROUTINE) == pytest.approx(COST_S / 0.0015)


def test_a_moment_that_is_missed_comes_again_a_cycle_later() -> None:
    assert after(9).pause_s(Wish(2.0, is_urgent=True, every_s=3.0)) == pytest.approx(11.0)
    assert after(1).pause_s(Wish(2.0, is_urgent=True, every_s=3.0)) == 2.0


def test_what_is_not_spent_is_not_saved_for_ever() -> None:
    cadence = Cadence(Steady())
    cadence.spend(0, 0)
    cadence.spend(3600 * SECOND_NS, int(CAPITAL_S * SECOND_NS))
    assert cadence.pause_s(URGENT) > 0.5


def test_one_dear_reading_is_not_held_against_the_next_ones_for_minutes() -> None:
    cadence = after(5)
    cadence.spend(0, 2 * SECOND_NS)
    assert 20 < cadence.pause_s(URGENT) < 40


def test_pauses_vary_so_that_no_loop_is_in_step_with_them() -> None:
    cadence = Cadence(random.Random(1))
    pauses_s = [cadence.pause_s(ROUTINE) for _ in range(50)]
    assert min(pauses_s) < 4 < 6 < max(pauses_s)
    assert all(5 * (1 - JITTER) <= pause_s <= 5 * (1 + JITTER) for pause_s in pauses_s)


@pytest.mark.parametrize("seed", range(20))
def test_the_cost_is_bounded_whatever_is_wished_for(seed: int) -> None:
    """All wishes are for at once, and one reading costs 5 to 40 ms."""
    chance = random.Random(seed)
    cadence, at_s, spent_s = Cadence(chance), 0.0, 0.0
    while at_s < 300:
        cost_s = chance.uniform(0.005, 0.04)
        spent_s += cost_s
        cadence.spend(int(at_s * SECOND_NS), int(cost_s * SECOND_NS))
        assert spent_s <= CAPITAL_S + EARNED_SHARE * at_s + 3 * 0.04
        at_s += cadence.pause_s(Wish(0.0, is_urgent=chance.random() < 0.5))
