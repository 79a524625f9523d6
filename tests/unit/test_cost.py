"""What profd costs, measured on this process; and the governor, in runs whose cost a formula gives."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest
from clocks import StoppedClock
from hypothesis import given
from hypothesis import strategies as st

from profd.daemon import processes
from profd.daemon.collect.cost import LOWEST_RATE_HZ, CostMeter, Governor

BUDGET = 0.10


def linear(per_hz: float, fixed: float = 0.0) -> Callable[[int], float]:
    return lambda rate_hz: fixed + per_hz * rate_hz


def simulate(governor: Governor, cost_of: Callable[[int], float], seconds: int = 600) -> list[int]:
    """Let a run cost what its rate makes it cost; returns the rate of each second."""
    rates = []
    for _ in range(seconds):
        governor.take(cost_of(governor.rate_hz))
        rates.append(governor.rate_hz)
    return rates


def changes(rates: list[int]) -> list[int]:
    return [rate for rate, _ in itertools.groupby(rates)]


def test_a_cheap_run_keeps_its_rate() -> None:
    assert set(simulate(Governor(100, BUDGET), linear(0.0005))) == {100}


def test_a_dear_run_comes_within_its_budget() -> None:
    cost_of = linear(0.003, fixed=0.02)
    rates = simulate(Governor(100, BUDGET), cost_of)
    assert cost_of(rates[-1]) <= BUDGET
    assert cost_of(rates[-1]) > 0.5 * BUDGET


@given(
    rate_hz=st.integers(1, 1000),
    per_hz=st.floats(0, 0.02),
    fixed=st.floats(0, 0.2),
    budget=st.floats(0.005, 1.0),
)
def test_the_rate_settles_within_bounds(rate_hz: int, per_hz: float, fixed: float, budget: float) -> None:
    cost_of = linear(per_hz, fixed)
    rates = simulate(Governor(rate_hz, budget), cost_of, 1500)
    assert all(min(LOWEST_RATE_HZ, rate_hz) <= rate <= rate_hz for rate in rates)
    assert len(set(rates[-300:])) == 1, f"it goes on changing: {changes(rates)}"
    assert cost_of(rates[-1]) <= budget * 1.0001 or rates[-1] == min(LOWEST_RATE_HZ, rate_hz)


def test_the_rate_rises_again_when_there_is_room() -> None:
    governor = Governor(100, BUDGET)
    lowest = simulate(governor, linear(0.004))[-1]
    assert lowest < 30
    rates = simulate(governor, linear(0.0005))
    assert rates[-1] == 100
    assert changes(rates) == sorted(changes(rates))


def test_one_dear_second_moves_nothing() -> None:
    governor = Governor(100, BUDGET)
    for second in range(60):
        assert not governor.take(0.5 if second == 30 else 0.05)


def test_cost_that_comes_in_lumps_moves_nothing() -> None:
    governor = Governor(100, BUDGET)
    assert not any(governor.take(0.32 if second % 4 == 0 else 0.0) for second in range(600))


def test_noise_about_a_settled_cost_moves_little() -> None:
    noise = random.Random(7)
    rates = simulate(Governor(100, BUDGET), lambda rate_hz: 0.0008 * rate_hz * noise.uniform(0.7, 1.3), 3600)
    assert len(changes(rates)) <= 2


def test_a_change_is_told_once_and_then_waited_for() -> None:
    governor = Governor(100, BUDGET)
    told = [governor.take(0.2) for _ in range(24)]
    assert told == [False] * 11 + [True] + [False] * 11 + [True]


def test_cost_counts_this_process_and_children_that_ended() -> None:
    clock = StoppedClock()
    meter = CostMeter(clock)
    burn = "import time\nwhile time.process_time() < 0.05: pass"
    subprocess.run([sys.executable, "-SEc", burn], check=True)
    clock.advance(0.5)
    assert meter.cores() >= 0.1
    clock.advance(1000)
    assert meter.cores() < 0.1


def test_cost_at_one_time_is_no_division_by_zero() -> None:
    meter = CostMeter(StoppedClock())
    assert meter.cores() >= 0


def test_memory_counts_this_process_and_living_children() -> None:
    meter = CostMeter(StoppedClock())
    with subprocess.Popen([sys.executable, "-SEc", "print(1, flush=True); input()"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        theirs = processes.rss_bytes(child.pid)
        both = meter.rss_bytes()
        child.kill()
        child.wait()
        alone = meter.rss_bytes()
    assert theirs is not None
    assert both - alone == pytest.approx(theirs, rel=0.5)
    assert alone == pytest.approx(processes.rss_bytes(os.getpid()), rel=0.1)


SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint('spun', flush=True)\ninput()"


def test_a_child_counts_while_it_lives() -> None:
    clock = StoppedClock()
    meter = CostMeter(clock)
    with subprocess.Popen([sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"spun\n"
        clock.advance(1)
        assert meter.cores() >= 0.45
        child.kill()
