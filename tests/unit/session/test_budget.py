"""What profd costs, measured on this process."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.clocks import StoppedClock
from support.present import there
from support.profdcost import RUNS, Spendthrift, has_to_govern, live

from profd.daemon import processes
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.session.budget import CostMeter, Governor, Ledger, Spending
from profd.daemon.stacks.chain import Allowance


def test_cost_counts_this_process_and_children_that_ended_once() -> None:
    clock = StoppedClock()
    meter = CostMeter(clock)
    meter.take()
    assert meter.take().cores == 0  # no time has passed
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-SEc", burn], check=True)
    clock.advance(0.5)
    spending = meter.take()
    assert spending.cpu_s >= 0.2
    assert spending.over_s == 0.5
    assert spending.cores == spending.cpu_s / 0.5
    assert meter.take().cpu_s < spending.cpu_s / 2


def test_cost_begins_with_the_start_of_this_process() -> None:
    usage = os.times()
    spending = CostMeter(StoppedClock()).take()
    assert spending.cpu_s >= usage.user + usage.system
    age_s = there(processes.read_stat(os.getpid())).age_s
    assert age_s - 1 < spending.over_s <= age_s + 0.02


SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint('spun', flush=True)\ninput()"


def test_a_child_counts_while_it_lives_with_its_time_and_its_memory() -> None:
    clock = StoppedClock()
    meter = CostMeter(clock)
    meter.take()
    with subprocess.Popen([sys.executable, "-SEc", SPIN], stdin=-1, stdout=-1) as child:
        assert there(child.stdout).readline() == b"spun\n"
        theirs = psutil.Process(child.pid).memory_info().rss
        clock.advance(1)
        assert meter.take().cores >= 0.45
        both = meter.rss_bytes()
        child.kill()
        child.wait()
        meter.take()
        alone = meter.rss_bytes()
    assert both - alone == pytest.approx(theirs, rel=0.5)
    me = psutil.Process()
    # Other tests may have left children, as a tracker is one.
    living = (me, *me.children())
    assert alone == pytest.approx(sum(one.memory_info().rss for one in living), rel=0.1)


BUDGET = 0.10
MOST_EXCESS = 1.2


def linear(per_hz: float, fixed: float = 0.0) -> Callable[[float], float]:
    return lambda rate_hz: fixed + per_hz * rate_hz


def take(governor: Governor, cores: float) -> bool:
    return governor.take(Spending(cores, 1.0))


def begun(rate_hz: int = 100) -> Governor:
    """Return a governor that has its start behind it."""
    governor = Governor(rate_hz, BUDGET)
    take(governor, 0.0)
    return governor


def simulate(
    governor: Governor, cost_of: Callable[[float], float], seconds: int = 600
) -> list[int]:
    """Let a run cost what its rate makes it cost; returns the rate of each second, rounded down.

    Recordings alternate between whole rates, so what counts is the mean.
    """
    rates = []
    for _ in range(seconds):
        take(governor, cost_of(governor.mean_hz))
        rates.append(governor.rate_hz)
    return rates


def changes(rates: list[int]) -> list[int]:
    return [rate for rate, _ in itertools.groupby(rates)]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("budget", [0.02, 0.03, 0.05, 0.1, 0.2])
def test_no_minute_passes_the_budget_by_more_than_a_fifth(run: str, budget: float) -> None:
    dearest = live(Governor(100, budget), RUNS[run](1)).dearest_minute()
    assert dearest <= budget * MOST_EXCESS or not has_to_govern(budget, RUNS[run](1))


@pytest.mark.parametrize("run", RUNS)
def test_a_budget_is_used_where_rates_have_to_be_lowered(run: str) -> None:
    spent_s = live(Governor(1000, BUDGET), RUNS[run](1), 600).spent_s[-300:]
    assert sum(spent_s) / 300 > 0.4 * BUDGET


@pytest.mark.parametrize(("rate_hz", "cores_per_hz"), [(100, 0.003), (100, 0.006), (10, 0.022)])
def test_nine_tenths_of_a_budget_are_used_by_threads_that_cost_more(
    rate_hz: int, cores_per_hz: float
) -> None:
    life = live(
        Governor(rate_hz, BUDGET),
        Spendthrift(cores_per_hz=cores_per_hz, own_cores=0.012, seed=2),
        900,
    )
    assert sum(life.spent_s[120:]) / 780 >= 0.93 * BUDGET
    assert life.dearest_minute() <= MOST_EXCESS * BUDGET


def cost_with(workers: int) -> float:
    """Return the cores that a governed run with so many workers settles at."""
    life = live(Governor(100, BUDGET), Spendthrift(workers=lambda second: workers))
    return sum(life.spent_s[-120:]) / 120


def test_workers_cost_little_more_the_more_there_are_and_move_the_rate_seldom() -> None:
    eight, sixteen = cost_with(8), cost_with(16)
    assert eight <= BUDGET
    assert sixteen - eight < 0.02
    assert live(Governor(100, BUDGET), RUNS["workers of epochs"](1), 600).changes() <= 30


def test_a_small_budget_begins_with_a_low_rate_and_turns_get_less_as_it_falls() -> None:
    assert Governor(100, 0.02).rate_hz == 33
    assert Governor(100, 0.10).rate_hz == 100
    assert Governor(100, 0.001).rate_hz == RECORDING.lowest_rate_hz
    assert Governor(3, 0.001).rate_hz == 3
    governor = Governor(100, BUDGET)
    assert governor.turn_share == 0.5
    governor.mean_hz = 20
    assert governor.turn_share == pytest.approx(0.1)


def test_many_threads_begin_with_a_low_rate_so_that_the_first_minute_holds_its_budget() -> None:
    assert [Governor(100, BUDGET, threads).rate_hz for threads in (1, 4, 32, 160, 2_000)] == [
        100,
        100,
        26,
        5,
        3,
    ]
    # 160 threads on a machine that is slow to read them: 3 Hz take three quarters of the budget.
    run = Spendthrift(cores_per_hz=0.021, own_cores=0.012)
    assert live(Governor(100, BUDGET, 160), run).dearest_minute() <= 1.1 * BUDGET


@settings(max_examples=15)  # each is a run of 25 minutes
@example(rate_hz=6, per_hz=0.005587541475192183, fixed=0.0, budget=0.03125)
@given(
    rate_hz=st.integers(1, 1000),
    per_hz=st.floats(0, 0.02),
    fixed=st.floats(0, 0.2),
    budget=st.floats(0.005, 1.0),
)
def test_the_rate_settles_within_bounds(
    rate_hz: int, per_hz: float, fixed: float, budget: float
) -> None:
    cost_of = linear(per_hz, fixed)
    governor = Governor(rate_hz, budget)
    rates = simulate(governor, cost_of, 1200)
    settled_hz = governor.mean_hz
    rates += simulate(governor, cost_of, 300)
    assert governor.mean_hz == settled_hz
    assert all(min(RECORDING.lowest_rate_hz, rate_hz) <= rate <= rate_hz for rate in rates)
    assert len(set(rates[-300:])) == 1, f"it goes on changing: {changes(rates)}"
    lowest_hz = min(RECORDING.lowest_rate_hz, rate_hz)
    assert cost_of(settled_hz) <= budget * 1.0001 or settled_hz == lowest_hz


def seconds_until_raised(governor: Governor) -> int:
    """Lower the rate by a dear second, and return after how many seconds without any cost it is
    raised.
    """
    assert take(governor, 1.0)
    return next(second for second in range(1, 1000) if take(governor, 0.0))


def test_a_raise_that_is_taken_back_makes_the_next_one_wait_twice_as_long() -> None:
    governor = begun()
    waits = [seconds_until_raised(governor) for _ in range(6)]
    assert waits == [
        11,
        24,
        48,
        96,
        192,
        240,
    ]  # ten readings, after one that is in part of the rate before
    governor = begun()
    assert seconds_until_raised(governor) == 11
    for _ in range(120):
        take(governor, 0.0)
    take(
        governor, 1.0
    )  # after long calm, a second dear second tells that the first was no exception
    assert seconds_until_raised(governor) == 11


@pytest.mark.parametrize(("cores", "waits_s"), [(0.085, 20), (0.05, 96)], ids=["small", "large"])
def test_after_raises_that_were_taken_back_a_small_one_does_not_wait(
    cores: float, waits_s: int
) -> None:
    governor = begun()
    for _ in range(3):
        seconds_until_raised(governor)
    assert take(governor, 1.0)
    lowered_hz = governor.mean_hz
    assert next(second for second in range(1, 1000) if take(governor, cores)) == waits_s
    assert governor.mean_hz > lowered_hz


def test_a_moment_is_no_forecast() -> None:
    governor = begun()
    assert not governor.take(
        Spending(0.03, 0.02)
    )  # a second of profd's own start, as a run of a busy machine had it
    assert not take(governor, 0.1)
    assert not governor.take(Spending(0.0, 0.02))
    assert governor.take(Spending(0.4, 0.6))


def test_dear_imports_are_made_good_within_half_a_minute() -> None:
    # As read from a run of ResNet-18 with two workers: a core's sixth to third while it imports, a
    # twelfth thereafter.
    imports = Spendthrift(
        cores_per_hz=0.0007, start_s=1.0, dearness=lambda second: 4 if second < 7 else 1
    )
    rates_hz = live(Governor(100, BUDGET), imports, 60).rates_hz
    assert min(rates_hz) < 60
    assert rates_hz[40] >= 80


def test_the_start_is_paid_but_is_no_forecast() -> None:
    governor = Governor(100, BUDGET)
    assert not take(governor, 3.0)
    assert not take(governor, 0.05)
    assert governor.rate_hz == 100
    # Of a minute's 6 s, 3 are gone.
    assert any(take(governor, 0.09) for _ in range(12))


DEAR_SECOND, LUMPS = (
    (lambda second: 0.5 if second == 30 else 0.05),
    (lambda second: 0.32 if second % 4 == 3 else 0.0),
)


@pytest.mark.parametrize(
    "cores", [DEAR_SECOND, LUMPS], ids=["one dear second", "cost that comes in lumps"]
)
def test_what_is_no_more_than_noise_moves_little(cores: Callable[[int], float]) -> None:
    governor = begun()
    assert not any(take(governor, cores(second)) for second in range(600))
    noise = random.Random(7)
    rates = simulate(
        Governor(100, BUDGET), lambda rate_hz: 0.0008 * rate_hz * noise.uniform(0.7, 1.3), 3600
    )
    assert len(changes(rates)) <= 2


def test_what_windows_cost_lowers_no_rate() -> None:
    governor, other = begun(), begun()
    for second in range(60):
        is_read = second % 10 in (8, 9)
        cores = 0.9 if is_read else 0.05
        governor.take(Spending(cores, 1.0), for_window=is_read)
        other.take(Spending(cores, 1.0))
    assert (governor.rate_hz, other.rate_hz < 20) == (100, True)


def test_a_budget_that_cannot_be_kept_is_known() -> None:
    governor = begun()
    for fixed, is_beyond in ((0.12, True), (0.01, False)):
        simulate(governor, linear(0.001, fixed), 120)
        assert governor.is_beyond_budget is is_beyond
    rates = simulate(governor, linear(0.0005))
    assert (rates[-1], changes(rates)) == (
        100,
        sorted(changes(rates)),
    )  # it rises, and is not lowered again


def test_a_ledger_holds_a_minute_and_allows_what_any_minute_to_come_leaves() -> None:
    ledger = Ledger()
    assert ledger.spent_s(60) == 0
    for _ in range(1000):
        ledger.add(Spending(0.3, 1.5))
    assert ledger.spent_s(60) == pytest.approx(12)
    assert ledger.spent_s(1) == pytest.approx(0.2)
    ledger.add(Spending(1.0, 0.0))
    assert ledger.spent_s(1.5) == pytest.approx(1.3)
    ledger = Ledger()
    ledger.add(Spending(3.0, 1.0))
    for _ in range(29):
        ledger.add(Spending(0.0, 1.0))
    assert ledger.allowance(0.1) == pytest.approx((6 - 3) / 30)
    for _ in range(30):
        ledger.add(Spending(0.0, 1.0))
    assert ledger.allowance(0.1) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("asked_hz", "cores", "taken_hz"),
    [(50, 0.02, (50, 50)), (2, 0.02, (2, 2)), (200, 0.01, (200, 200)), (1000, 0.05, (151, 249))],
)
def test_a_rate_is_taken_as_far_as_the_budget_has_room(
    asked_hz: int, cores: float, taken_hz: tuple[int, int]
) -> None:
    governor = begun(100)
    for _ in range(12):
        take(governor, cores)
    governor.aim(asked_hz)
    assert governor.highest_hz == asked_hz
    assert taken_hz[0] <= governor.rate_hz <= taken_hz[1]
    assert max(simulate(governor, linear(0.0005))) <= taken_hz[1]


def test_a_rate_that_is_aimed_at_again_is_what_the_budget_bore_before() -> None:
    """A low rate says little of the cost of a high one: most of it is fixed."""
    governor = begun(100)
    fixed = linear(0.0006, 0.01)
    simulate(governor, fixed)
    borne_hz = governor.rate_hz
    governor.aim(20)
    simulate(governor, fixed)
    assert governor.rate_hz == 20
    governor.aim(100)
    assert governor.rate_hz == borne_hz


@pytest.mark.parametrize(
    ("before", "budget", "lowest_hz"),
    [(BUDGET, BUDGET / 2, RECORDING.lowest_rate_hz), (BUDGET / 2, BUDGET, 80)],
)
def test_another_budget_is_used_and_kept_from_its_first_minute_on(
    before: float, budget: float, lowest_hz: int
) -> None:
    governor = Governor(100, before)
    assert (simulate(governor, linear(0.0006, 0.02), 120)[-1] < 60) == (before < budget)
    governor.aim_at_budget(budget)
    rates = simulate(governor, linear(0.0006, 0.02), 300)
    costs = [0.02 + 0.0006 * rate for rate in rates]
    assert all(sum(costs[at : at + 60]) / 60 <= budget * MOST_EXCESS for at in range(60, 240))
    assert rates[-1] > lowest_hz


def test_at_the_lowest_rate_a_chain_may_take_its_share_of_what_the_minute_has_left() -> None:
    governor = Governor(100, 0.1, threads=2_000)
    assert governor.rate_hz == RECORDING.lowest_rate_hz
    assert list(governor.allowance(1)) == pytest.approx([0.1, 5.64, 5.64, 0, 5.64])
    governor.take(Spending(3.0, 1.0))
    assert list(governor.allowance(2)) == pytest.approx([0.0375, 1.32, 2.82, 0, 2.77], rel=0.02)
    governor.take(Spending(9.0, 1.0))
    assert list(governor.allowance(1)) == pytest.approx([0, 0, 5.64, 0, 5.45], rel=0.01)


@pytest.mark.parametrize("own_cores", [0.0, 0.02])
def test_what_is_not_early_keeps_the_mean_since_the_start_within_the_budget(
    own_cores: float,
) -> None:
    governor = Governor(100, 0.1, threads=2_000)
    governor.is_held = True
    for age_s in range(1, 120):
        governor.take(Spending(1.0 if age_s == 5 else own_cores, 1.0, own_cores))
        spent_s = 1.0 + own_cores * (min(age_s, 60) - 1)
        allowance = governor.allowance(1)
        due_s = allowance.cpu_s - allowance.early_s
        if 20 < age_s < 60:
            # What is left is known for every tenth second to come.
            room_s = 10 * own_cores + 0.01
            assert due_s == pytest.approx(0.094 * age_s - spent_s, abs=room_s)
        elif age_s >= 60:
            assert allowance.early_s == 0


def test_what_was_spent_before_the_session_counts_in_its_first_minute() -> None:
    governor = Governor(100, 0.1, threads=2_000, spent_s=1.5)
    governor.is_held = True
    assert governor.allowance(1).cpu_s == pytest.approx(5.64 - 1.5)
    for _ in range(60):
        take(governor, 0.0)
    assert governor.allowance(1).cpu_s == pytest.approx(5.64)


def test_what_profd_itself_will_take_of_a_minute_is_not_left_for_recordings() -> None:
    ledger = Ledger()
    assert ledger.own_cores() == 0
    for number in range(12):
        ledger.add(Spending(1.0 if number == 3 else 0.025, 1.0, 0.5 if number == 3 else 0.025))
    # What was dear once was paid; the other 48 seconds take a fortieth each.
    assert ledger.left_s(5.64) == pytest.approx(5.64 - 1.275 - 48 * 0.025, abs=0.1)
    assert ledger.left_s(1.0) == 0


def test_threads_that_come_later_lower_the_rate_before_they_are_paid_for() -> None:
    governor = begun()
    governor.expect(160)
    assert governor.rate_hz == Governor(100, BUDGET, 160).rate_hz
    assert not take(governor, 0.9), "a reading that is in part of the rate before"
    governor.expect(2)
    assert governor.rate_hz == 5


def test_the_start_does_not_say_what_profd_takes_later() -> None:
    governor = Governor(100, 0.1, threads=2_000)
    for _ in range(3):
        governor.take(Spending(0.3, 1.0, 0.3))
    assert list(governor.allowance(1))[1:3] == pytest.approx([5.64 - 0.9, 5.64])


def paused(spent_s: float = 0.0) -> Governor:
    """Return a governor whose recordings pause."""
    governor = Governor(100, 0.1, threads=2_000)
    governor.is_held = True
    take(governor, spent_s)
    return governor


def test_looks_take_a_third_of_a_minute_at_most() -> None:
    governor = paused()
    assert governor.grant(0.8)
    for _ in range(20):
        take(governor, 0.0)
    assert governor.grant(0.8)
    assert not governor.grant(0.8)
    for _ in range(45):
        take(governor, 0.0)
    assert governor.grant(0.8)  # the first one was more than a minute ago
    alone = paused()
    assert alone.grant(2.5)  # one is dearer than a third, and the only one of its minute


def test_while_recordings_pause_a_look_is_paid_of_what_is_left_and_is_kept_room_for() -> None:
    governor = paused(spent_s=5.0)
    assert not governor.grant(0.8)
    assert governor.grant(0.03), "a look at a usual process is never refused"
    assert not governor.grant(0.8)
    assert governor.allowance(1).kept_s == 0.8
    for _ in range(3):
        take(governor, 0.0)
    assert governor.allowance(1).kept_s == 0, "it does not ask again"
    for _ in range(60):
        take(governor, 0.0)
    governor.is_promised = True
    assert not governor.grant(0.8), "the recording in flight takes what is left"
    governor.is_promised = False
    assert governor.grant(0.8)


def test_beside_rates_that_may_be_lowered_looks_wait_for_no_room() -> None:
    governor = begun()
    take(governor, 9.0)
    assert governor.grant(0.8)


def test_while_there_is_a_lower_rate_no_chain_has_to_pause() -> None:
    assert Governor(100, 0.1).allowance(1) == Allowance()


def test_the_rate_does_not_rise_while_recordings_pause() -> None:
    governor = Governor(100, 0.1, threads=2_000)
    governor.is_held = True
    assert not any(governor.take(Spending(0.001, 1.0)) for _ in range(60))
    governor.is_held = False
    assert governor.take(Spending(0.001, 1.0))
