"""How often a counter started over, by the one period that all breaks fit to."""

from __future__ import annotations

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.gait import Gait, Position
from profd.daemon.collect.steps.restarts import BREAKS_KEPT, MOST_CYCLES, Restarts

RATE_PER_S = 20.0


def position(at_s: float, value: int) -> Position:
    return Position(int(at_s * SECOND_NS), 0, value, None)


def restarts_of(*breaks: tuple[tuple[float, int], tuple[float, int]], least_s: float = 1.0) -> Restarts:
    restarts = Restarts()
    for before, after in breaks:
        restarts.see(position(*before), position(*after), Gait(RATE_PER_S), least_s)
    return restarts


def test_one_fall_is_one_cycle() -> None:
    assert restarts_of(((4, 80), (6, 20))).ends(1) == 1
    assert restarts_of(((4, 80), (6, 20))).period_s == pytest.approx(5)


def test_a_fall_that_is_a_whole_number_of_others_is_as_many_cycles() -> None:
    restarts = restarts_of(((4, 80), (6, 20)), ((9, 80), (21, 20)))
    assert [restarts.ends(breaks) for breaks in range(3)] == [0, 1, 4]


def test_an_earlier_break_is_judged_anew_by_a_later_one() -> None:
    """Ten seconds behind were one cycle, until five were seen."""
    restarts = restarts_of(((4, 80), (11, 20)))
    assert restarts.ends(1) == 1
    restarts.see(position(14, 80), position(16, 20), Gait(RATE_PER_S), 4.0)
    assert [restarts.ends(1), restarts.ends(2)] == [2, 3]


def test_no_period_is_shorter_than_a_cycle_can_be() -> None:
    assert restarts_of(((4, 80), (6, 20)), ((9, 80), (16.5, 20)), least_s=4.5).period_s > 4


def test_a_pause_is_no_cycle() -> None:
    restarts = restarts_of(((1, 20), (4, 40)), ((8, 80), (10, 20)), least_s=4.0)
    assert [restarts.ends(1), restarts.ends(2)] == [0, 1]
    assert restarts_of(((1, 20), (4, 40))).period_s == 0


def test_who_starts_over_and_catches_up_has_done_so_a_cycle() -> None:
    restarts = restarts_of(((1, 20), (7, 40)), ((8, 80), (10, 20)))
    assert [restarts.ends(1), restarts.ends(2)] == [1, 2]


def test_sightings_that_were_passed_over_may_show_a_shorter_period() -> None:
    restarts = restarts_of(((4, 80), (11, 20)))
    ways = [(position(4, 80), position(6, 20)), (position(11, 20), position(17, 40))]
    restarts.shorten(ways, Gait(RATE_PER_S), 4.0)
    assert restarts.period_s == pytest.approx(5)
    assert restarts.ends(1) == 2


def test_sightings_that_fit_to_no_period_change_nothing() -> None:
    restarts = restarts_of(((4, 80), (11, 20)))
    restarts.shorten(
        [(position(4, 80), position(6, 20)), (position(11, 20), position(18.7, 40))], Gait(RATE_PER_S), 4.0
    )
    assert restarts.ends(1) == 1


def test_a_period_explains_sightings_or_does_not() -> None:
    restarts = Restarts()
    true = [position(4, 80), position(6, 20), position(12, 40), position(17, 40)]
    assert restarts.explain(true, Gait(RATE_PER_S), 4.0)
    assert not restarts.explain([*true[:3], position(18.7, 40)], Gait(RATE_PER_S), 4.0)
    assert not restarts.explain([position(4, 80), position(4.1, 0)], Gait(RATE_PER_S), 5.5)


def test_what_is_long_past_is_settled() -> None:
    restarts = restarts_of(*(((5 * k + 4, 80), (5 * k + 6, 20)) for k in range(3 * BREAKS_KEPT)))
    assert restarts.seen == 3 * BREAKS_KEPT
    assert restarts.ends(restarts.seen) == 3 * BREAKS_KEPT


def test_what_the_period_does_not_explain_may_be_wrong() -> None:
    """Of 8 seconds without a step, 160 steps, a cycle of 100 explains those that it has and no others."""
    gait = Gait(RATE_PER_S)
    explained = restarts_of(((4, 80), (6, 20)), ((9, 80), (11, 20)))
    assert explained.unexplained_steps(2, 100, gait) == 0
    paused = restarts_of(((1, 20), (9, 20)))
    assert paused.unexplained_steps(1, 100, gait) == pytest.approx(160)
    assert paused.unexplained_steps(0, 100, gait) == 0


def test_breaks_of_long_ago_may_still_be_wrong() -> None:
    breaks = [((10.0 * number, 20), (10.0 * number + 8, 20)) for number in range(BREAKS_KEPT + 6)]
    restarts = restarts_of(*breaks)
    assert restarts.unexplained_steps(restarts.seen, 100, Gait(RATE_PER_S)) == pytest.approx(160 * len(breaks))


def test_a_break_that_is_no_whole_number_of_cycles_is_the_nearest_one() -> None:
    restarts = restarts_of(((4, 80), (6, 20)), ((9, 80), (17.7, 80)), least_s=4.0)
    assert restarts.ends(2) - restarts.ends(1) == 2


def test_an_address_that_was_read_for_a_value_is_not_counted_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try each number of cycles that so much could be would take hours, and nothing else goes on meanwhile."""
    tried: list[float] = []

    def refined(period_s: float, breaks: object) -> float:
        tried.append(period_s)
        assert len(tried) <= 2 * MOST_CYCLES
        return period_s

    monkeypatch.setattr("profd.daemon.collect.steps.restarts._refined", refined)
    seen = [position(14, 100), position(16, 140_652_866_078_112), position(18, 180)]
    assert not restarts_of(((4, 80), (6, 20))).explain(seen, Gait(RATE_PER_S), 1.0)
    assert tried
