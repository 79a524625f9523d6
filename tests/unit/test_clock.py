"""The clock of a run, with the machine's two clocks in the test's hands."""

from __future__ import annotations

import time

import pytest

from profd.daemon.clock import SECOND_NS, Clock, until_tick_s


class TwoClocks:
    """The wall clock and the monotonic one, each set at will."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns = 1_795_176_000 * SECOND_NS
        self.monotonic_ns = 5 * SECOND_NS
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ns)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.monotonic_ns)

    def advance(self, seconds: int) -> None:
        self.wall_ns += seconds * SECOND_NS
        self.monotonic_ns += seconds * SECOND_NS


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> TwoClocks:
    return TwoClocks(monkeypatch)


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_it_goes_with_the_wall_clock_whose_jumps_move_nothing_and_are_known(
    clocks: TwoClocks, seconds: int
) -> None:
    clock = Clock()
    clocks.advance(3)
    assert clock.now_ns() == clocks.wall_ns
    assert clock.wall_jump_ns() == 0
    before_ns = clock.now_ns()
    clocks.wall_ns += seconds * SECOND_NS
    assert clock.now_ns() == before_ns
    assert clock.wall_jump_ns() == seconds * SECOND_NS


def test_time_that_the_machine_slept_is_left_out_and_known(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {time.CLOCK_BOOTTIME: 900 * SECOND_NS, time.CLOCK_MONOTONIC: 500 * SECOND_NS}
    monkeypatch.setattr(time, "clock_gettime_ns", times.__getitem__)
    clock = Clock()
    assert clock.suspended_ns() == 0
    times[time.CLOCK_BOOTTIME] += 70 * SECOND_NS
    times[time.CLOCK_MONOTONIC] += 10 * SECOND_NS
    assert clock.suspended_ns() == 60 * SECOND_NS


def test_anchor_lies_in_the_middle_of_its_two_readings(
    clocks: TwoClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([100, 300, 300])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(readings))
    clock = Clock()
    assert clock.anchor_monotonic_ns == 200
    assert clock.now_ns() == clocks.wall_ns + 100


@pytest.mark.parametrize(
    ("now_s", "interval_s", "left_s"), [(7.25, 1.0, 0.75), (7.25, 0.5, 0.25), (7.5, 0.5, 0.5)]
)
def test_ticks_are_multiples(
    monkeypatch: pytest.MonkeyPatch, now_s: float, interval_s: float, left_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    assert until_tick_s(interval_s) == left_s
