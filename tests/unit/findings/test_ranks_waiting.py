"""For how long ranks wait all together, in numbers that can be worked out by hand."""

from __future__ import annotations

import pytest

from profd.daemon.analyze.ranks import OwnWork
from profd.daemon.findings.context import Share
from profd.daemon.findings.ranks import take_waiting


def effort(own: tuple[float | None, ...], cores: tuple[float | None, ...]) -> OwnWork:
    """Return what a rank did in each part of a range: its own work, and the CPU time that it used."""
    return OwnWork(0, frozenset({1}), 500, own, cores, {}, {})


def told(waiting: Share | None) -> tuple[float, float, float]:
    assert waiting is not None
    return waiting.value, waiting.low, waiting.high


def test_what_is_neither_work_nor_cpu_time_is_waiting_for_sure() -> None:
    # 1 - 0.5 - 0.3 in each part; it is at most the half that is not its own work.
    steady = [effort((0.5, 0.5), (0.3, 0.3))] * 2
    assert told(take_waiting(steady, 0.0)) == pytest.approx((0.2, 0.2, 0.5))


def test_who_sleeps_may_have_wanted_a_core() -> None:
    steady = [effort((0.5, 0.5), (0.3, 0.3))]
    assert told(take_waiting(steady, 0.05)) == pytest.approx((0.2, 0.15, 0.5))
    assert told(take_waiting(steady, 0.9)) == pytest.approx((0.2, 0.0, 0.5))


def test_cpu_time_bounds_the_waiting_from_above() -> None:
    # The rank computes four fifths of the time: it waits for one fifth at most, however little of that is known work.
    assert told(take_waiting([effort((0.1, 0.1), (0.8, 0.8))], 0.0)) == pytest.approx((0.1, 0.1, 0.2))
    # Several threads of it use more than a core.
    assert told(take_waiting([effort((0.1, 0.1), (2.0, 2.0))], 0.0)) == (0.0, 0.0, 0.0)


def test_parts_that_differ_widen_the_interval() -> None:
    # Means 0.2 of 0.1 and 0.3: their standard error is 0.1.
    value, low, high = told(take_waiting([effort((0.5, 0.5), (0.4, 0.2))], 0.0))
    assert (value, low, high) == pytest.approx((0.2, 0.2 - 0.196, 0.5 + 0.196), abs=1e-3)


def test_fewer_than_two_parts_that_were_seen_and_read_tell_nothing() -> None:
    assert take_waiting([], 0.0) is None
    assert take_waiting([effort((0.5, None, 0.5), (0.3, 0.3, None))], 0.0) is None
