"""Idle time of GPUs by phase: simulated loops whose truth is known.

Benchmarks/gpu_idle.py has thousands of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from support.gputimelines import COMPUTE, FORMS, QUEUES, SYNCHRONIZE, WAIT, Kind, Timeline, any_kind

from profd.daemon.analyze.idletime import IdleShare, IdleTime, Queue
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.stepfunction import Step, StepFunction, step_function


def shares_with_waits(run: Timeline) -> dict[int, IdleShare]:
    return shares(step_function(run.readings()), run.samples(), QUEUES.get)


def shares(
    utilization: StepFunction,
    samples: Sequence[IntervalRow],
    queue_of: Callable[[int], Queue | None] = lambda _: None,
) -> dict[int, IdleShare]:
    time = IdleTime[int]()
    time.add(utilization, samples, lambda stack: stack, queue_of)
    return time.shares()


def test_the_truth_lies_within_the_bounds() -> None:
    inside = count = estimates = near = 0
    for seed in range(40):
        chance = random.Random(seed)
        run = Timeline(any_kind(chance), 30, chance)
        idle_ns, true = run.idle(0, run.end_ns), run.idle_by_phase()
        utilization = step_function(run.readings()).mean(0, run.end_ns)[0]
        assert 1 - utilization == pytest.approx(idle_ns / run.end_ns, abs=0.015)
        for phase, share in shares_with_waits(run).items():
            count += 1
            inside += share.low - 0.001 <= true[phase] / idle_ns <= share.high + 0.001
            if share.estimate is not None:
                assert share.low <= share.estimate <= share.high
                estimates += 1
                near += abs(share.estimate - true[phase] / idle_ns) <= 0.03
    assert inside >= 0.95 * count
    assert near >= 0.95 * estimates >= 0.35 * count


def test_idle_bounds_are_close_for_long_gaps_and_wide_for_short_ones() -> None:
    chance = random.Random(1)
    shares = shares_with_waits(Timeline(Kind("waits", 600, 0.5, 100, 0, 0.3), 60, chance))
    assert shares[WAIT].low > 0.8
    assert shares[COMPUTE].high < 0.15
    assert shares[SYNCHRONIZE].high < 0.15
    shares = shares_with_waits(
        Timeline(Kind("starts slowly", 4, 0.5, 200, 0, 0.0), 60, random.Random(1))
    )
    assert shares[COMPUTE].high - shares[COMPUTE].low > 0.2
    assert shares[COMPUTE].estimate is None


@pytest.mark.parametrize("form", ["waits", "all of it"])
def test_gaps_of_30_ms_are_estimated_only_with_waits_for_the_gpu(form: str) -> None:
    run = Timeline(Kind(form, 30, 0.5, 100, 0, 0.3), 120, random.Random(1))
    share, true = shares_with_waits(run)[WAIT], run.idle_by_phase()[WAIT] / run.idle(0, run.end_ns)
    assert share.high - share.low > 0.1
    assert share.estimate == pytest.approx(true, abs=0.03)
    assert shares(step_function(run.readings()), run.samples())[WAIT].estimate is None


def rows(*spans_ms: tuple[int, int, int]) -> list[IntervalRow]:
    """Return intervals that are sampled each ms, from lists of begin, end and stack."""
    return [
        IntervalRow(start * MILLISECOND_NS, (end - start) * MILLISECOND_NS, 1, stack, end - start)
        for start, end, stack in spans_ms
    ]


def steps(*values: float) -> StepFunction:
    """Return readings 100 ms apart."""
    edges = [100 * MILLISECOND_NS * number for number in range(len(values) + 1)]
    return StepFunction(
        [Step(*ends, value) for ends, value in zip(pairwise(edges), values, strict=True)], None
    )


def test_a_reading_bounds_the_idle_time_of_each_phase() -> None:
    # 60 of 100 ms idle, 70 ms in one phase: at least 30 and at most 60 of them; in the other none
    # to 30.
    time = IdleTime[int]()
    for _ in range(400):  # what chance does to one reading is much
        time.add(steps(0.4), rows((0, 70, 1), (70, 101, 2)), lambda stack: stack)
    shares = time.shares()
    assert (shares[1].low, shares[1].high) == pytest.approx((0.5, 1.0), abs=0.06)
    assert (shares[2].low, shares[2].high) == pytest.approx((0.0, 0.5), abs=0.06)


def test_a_gpu_that_works_on_after_a_wait_for_it_works_for_someone_else_too() -> None:
    spans = ((0, 30, SYNCHRONIZE), (30, 60, WAIT), (60, 100, COMPUTE))
    loop = rows(
        *(
            (100 * number + start, 100 * number + end, phase)
            for number in range(401)
            for start, end, phase in spans
        )
    )
    alone = shares(steps(*[0.6] * 400), loop, QUEUES.get)
    assert alone[WAIT].estimate == pytest.approx(0.75, abs=0.03)  # 30 of 40 ms
    assert alone[COMPUTE].estimate == pytest.approx(0.25, abs=0.03)
    beside_others = shares(steps(*[0.8] * 400), loop, QUEUES.get)
    assert {share.estimate for share in beside_others.values()} == {None}


def test_readings_that_were_not_sampled_and_a_busy_gpu_say_nothing() -> None:
    assert shares(steps(0.0, 0.0, 1.0), rows((0, 101, 1), (101, 150, 2), (201, 301, 3))).keys() == {
        1,
        3,
    }
    assert shares(steps(1.0, 1.0), rows((0, 201, 1))) == {}


@pytest.mark.parametrize("form", FORMS)
def test_a_phase_has_the_same_shares_however_its_lines_alternate(form: str) -> None:
    run = Timeline(Kind(form, 50, 0.5, 100, 0, 0.3), 20, random.Random(3))
    utilization, samples, whole, lines = (
        step_function(run.readings()),
        run.samples(),
        IdleTime[int](),
        IdleTime[int](),
    )
    whole.add(utilization, samples, lambda stack: stack, QUEUES.get)
    both = [half for row in samples for half in halves(row)]
    lines.add(utilization, both, lambda stack: stack, lambda stack: QUEUES.get(stack // 10))
    assert len(lines.shares()) > len(whole.shares())
    together = IdleTime[int]()
    together.add(
        utilization, both, lambda stack: stack // 10, lambda stack: QUEUES.get(stack // 10)
    )
    assert together.shares() == whole.shares()


def halves(row: IntervalRow) -> list[IntervalRow]:
    """Return an interval as two, at two lines of its phase."""
    half_ns = row.duration_ns // 2
    ends = (
        (row.start_ns, half_ns, 1),
        (row.start_ns + half_ns, row.duration_ns - half_ns, row.samples - 1),
    )
    return [
        IntervalRow(at_ns, for_ns, row.thread, 10 * row.stack + number, samples)
        for number, (at_ns, for_ns, samples) in enumerate(ends)
    ]
