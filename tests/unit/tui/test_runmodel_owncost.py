"""What the dashboard itself takes of a core, by a clock and a CPU time that are made up."""

from __future__ import annotations

import pytest

from profd.tui.runmodel import LATELY_S, OwnCost


class Spending:
    """A process that spends a part of the time."""

    def __init__(self) -> None:
        self.now_s = self.spent_s = 0.0

    def go_on(self, seconds: float, cores: float) -> None:
        self.now_s += seconds
        self.spent_s += seconds * cores


@pytest.fixture
def spending() -> Spending:
    return Spending()


@pytest.fixture
def cost(spending: Spending) -> OwnCost:
    return OwnCost(lambda: spending.now_s, lambda: spending.spent_s)


def test_nothing_is_said_of_the_first_moment(spending: Spending, cost: OwnCost) -> None:
    spending.go_on(0.5, cores=1.0)
    assert cost.cores() is None


def test_it_is_the_share_of_the_last_seconds_alone(spending: Spending, cost: OwnCost) -> None:
    for _ in range(10):
        spending.go_on(1.0, cores=1.0)
        said = cost.cores()
    assert said == pytest.approx(1.0)
    for _ in range(int(LATELY_S) + 1):
        spending.go_on(1.0, cores=0.03)
        said = cost.cores()
    assert said == pytest.approx(0.03)


def test_after_a_pause_it_is_that_of_the_pause(spending: Spending, cost: OwnCost) -> None:
    spending.go_on(5.0, cores=0.5)
    cost.cores()
    spending.go_on(100.0, cores=0.01)
    assert cost.cores() == pytest.approx(0.01)
