"""Bounds on a share, by the binomial distribution."""

from __future__ import annotations

import pytest
from proportions import at_most, most


def test_no_failure_leaves_the_rule_of_three_and_where_all_fail_all_may() -> None:
    assert most(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert most(5, 5) == pytest.approx(1.0)


@pytest.mark.parametrize(("failures", "trials"), [(0, 1), (1, 20), (7, 60), (59, 60)])
def test_bound_is_where_so_few_come_once_in_twenty_times(failures: int, trials: int) -> None:
    assert at_most(failures, trials, most(failures, trials)) == pytest.approx(0.05)
    assert most(failures, trials) > failures / trials
