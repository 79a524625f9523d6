"""What all sessions of a host together may spend, minute by minute."""

from __future__ import annotations

import pytest
from support.clocks import StoppedClock

from profd.daemon.service.sessions import START_S, HostBudget

BUDGET = 10.0


def spend(budget: HostBudget, clock: StoppedClock, cores: float, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1)
        budget.spend(cores)


def test_an_idle_host_has_all_of_its_budget() -> None:
    budget = HostBudget(StoppedClock())
    assert [budget.part(BUDGET, 2.0, sessions) for sessions in (0, 1, 2, 4)] == [10.0, 10.0, 5.0, 2.5]
    assert budget.starts(BUDGET) == int(6 / START_S)


def test_what_was_spent_leaves_less_until_a_minute_has_passed() -> None:
    clock = StoppedClock()
    budget = HostBudget(clock)
    spend(budget, clock, 0.5, 11)
    assert budget.starts(BUDGET) == 0
    assert budget.part(BUDGET, 2.0, 1) == pytest.approx(2.0)
    spend(budget, clock, 0.0, 60)
    assert budget.starts(BUDGET) > 5
    assert budget.part(BUDGET, 2.0, 1) == pytest.approx(10.0)


def test_short_jobs_without_end_keep_every_minute_within_the_budget() -> None:
    clock = StoppedClock()
    budget = HostBudget(clock)
    spent = []
    for _ in range(300):
        spent.append(START_S if budget.starts(BUDGET) else 0.0)
        spend(budget, clock, spent[-1], 1)
    minutes = [sum(spent[second : second + 60]) for second in range(240)]
    assert max(minutes) <= 60 * BUDGET / 100 + 1e-9
    assert min(minutes) >= 60 * BUDGET / 100 - 2 * START_S


def test_the_parts_of_sessions_that_use_theirs_are_the_budget() -> None:
    clock = StoppedClock()
    budget = HostBudget(clock)
    for _ in range(180):
        spend(budget, clock, 2 * budget.part(BUDGET, 2.0, 2) / 100, 1)
    assert 2 * budget.part(BUDGET, 2.0, 2) == pytest.approx(BUDGET)
