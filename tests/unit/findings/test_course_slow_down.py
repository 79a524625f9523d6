from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import pytest
from support.findingruns import HEALTHY, IMPORT, ROOT, Case, Series, at_most_without, step
from support.present import there
from support.synthetic import MAIN_TID, steps_counted
from support.training_stacks import LIBRARY, TRAIN

from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.course import _first_s, _Pace, slow_down, slow_start
from profd.daemon.findings.finding import INFO, WARNING
from profd.daemon.store.records import Frame, PointsTaken
from profd.daemon.units import duration

WORK = (ROOT[0], Frame("train_epoch", TRAIN, 70))
SAVE = (*WORK, Frame("save", LIBRARY + "torch/serialization.py", 9))


@pytest.mark.parametrize(
    ("start_s", "length_s", "severity"),
    [(10, 60, None), (25, 60, INFO), (70, 120, WARNING)],
    ids=lambda value: str(value),
)
def test_a_start_is_slow_by_itself_and_as_a_part_of_the_run(
    case: Case, start_s: int, length_s: int, severity: str | None
) -> None:
    steps = [((IMPORT, 500),)] * start_s + [HEALTHY] * (length_s - start_s)
    found = case.found(slow_start, *steps, seconds=length_s)
    assert (found and found.severity) == severity
    if found:
        assert found.title.startswith(f"slow start: {duration(start_s)} until the first step")
        assert there(found.evidence.line).line == 3


def counted(*rates: float) -> Series:
    """Return the counts of steps that go at these rates, each for a second."""
    counts = [0.0]
    for number, rate in enumerate(rates):
        counts.append(counts[-1] + rate * (1.02 if number % 2 else 0.98))
    return Series("step_count", *counts)


def test_steps_that_take_longer_and_longer_are_found_with_what_grew(case: Case) -> None:
    counts = counted(*[20.0] * 60, *[10.0] * 60)
    saves, works = (
        case.finding(
            slow_down,
            *[step((grown, 5))] * 60,
            *[step((grown, 250))] * 60,
            series=[counts],
            seconds=120,
        )
        for grown in (SAVE, WORK)
    )
    assert (
        "steps take 100 % longer than at first, most of it in checkpoint (train.py:70)"
        in saves.title
    )
    # A step took 75 ms in the mean of all, and 50 ms at first.
    assert saves.gain_bound == pytest.approx(at_most_without(0.25, indirect=0.5), rel=0.03)
    # What no rule knows is named by its line.
    assert works.title.endswith("most of it at train.py:70")
    assert works.remedy.startswith("See what takes longer at train.py:70 now")


def test_steps_that_wait_for_a_core_more_and_more_are_no_fault_of_a_line(case: Case) -> None:
    counts = counted(*[20.0] * 60, *[10.0] * 60)
    for now, is_crowded in ((0.6, True), (0.2, False)):
        waits = Series("main_thread_core_wait_share", *[0.1] * 60, now)
        cores = Series("cpu_cores", *[0.8] * 60, 0.3, tid=MAIN_TID)
        found = case.finding(slow_down, HEALTHY, series=[counts, cores, waits], seconds=120)
        assert found.rule == "slow-down"
        assert found.title.endswith("most of it waiting for a core") == is_crowded
        assert (found.evidence.line is None) == is_crowded
        assert ("60 % of the time now, and 10 % in" in found.cause) == is_crowded


def few(counts: Sequence[tuple[float, float]]) -> list[PointsTaken]:
    return [steps_counted(at_s, count) for at_s, count in counts]


def test_counts_that_are_read_seldom_tell_it_as_well(case: Case) -> None:
    counts = list(accumulate((20.0 / (1 + second / 60) for second in range(120)), initial=0.0))
    seldom = few([(second, counts[second]) for second in range(0, len(counts), 11)])
    found = case.finding(slow_down, HEALTHY, more=seldom, seconds=120)
    # Counts lie in the first third from 11 to 44 s, in the last from 77 to 110 s: steps take 1 +
    # 27.5 / 60 and 1 + 93.5 / 60 of what the first of all did.
    measure = found.evidence.measures[0]
    assert measure.value == pytest.approx(1.755, rel=0.02)
    # What steps differ by within a third is no chance: it belongs to a course that is even over the
    # whole run.
    assert there(measure.low) > 1.7


# A fast loop, whose counter is seldom read whole: the counts of a run in which a step without the
# cause took 1.4 ms.
FEW = [
    (6.0, 2759),
    (47.2, 13266),
    (55.6, 14792),
    (65.5, 16444),
    (78.1, 18287),
    (80.8, 18705),
    (87.6, 19646),
    (95.6, 20651),
    (97.6, 20899),
    (112.6, 22762),
    (118.2, 23476),
]


def test_a_few_counts_tell_it_by_the_line_through_them(case: Case) -> None:
    # Nobody knows what grew in that run, but in twelve others of the same script it took 60 to 66 %
    # of the time.
    steps = [step((SAVE, 240))] * 60 + [step((SAVE, 380))] * 60
    found = case.finding(slow_down, *steps, more=few(FEW), seconds=120)
    gain = 120 / 23726 / 0.00143
    assert gain < there(found.gain_bound) < 2 * gain


def test_steps_that_each_make_the_next_longer_lie_on_a_line_by_number(case: Case) -> None:
    # A step takes 10 ms, and 0.02 ms more for each before it: over the time that is no line.
    counts = [(at_s, (math.sqrt(1e-4 + 4e-5 * at_s) - 0.01) / 2e-5) for at_s, _ in FEW]
    found = case.finding(slow_down, HEALTHY, more=few(counts), seconds=120)
    measure = found.evidence.measures[0]
    assert measure.low == pytest.approx(measure.value, rel=1e-6)


def test_a_few_counts_of_even_steps_or_of_half_the_run_tell_nothing(case: Case) -> None:
    even = [
        (at_s, 200 * at_s * (1.02 if place % 2 else 0.98)) for place, (at_s, _) in enumerate(FEW)
    ]
    half = [(60 + at_s / 2.5, count) for at_s, count in FEW]
    for counts in (even, half):
        assert case.found(slow_down, HEALTHY, more=few(counts), seconds=120) is None


def test_a_counter_that_was_resumed_makes_no_first_step_short(case: Case) -> None:
    begun, resumed = (
        case.finding(
            slow_down,
            HEALTHY,
            more=few([(at_s, count + before) for at_s, count in FEW]),
            seconds=120,
        )
        for before in (0, 1_000_000)
    )
    assert [one.evidence.measures[0].value for one in (begun, resumed)] == [
        pytest.approx(2.0, rel=0.1)
    ] * 2
    assert resumed.gain_bound is None


def test_the_bound_goes_by_the_first_step_and_not_by_what_has_grown_by_then(case: Case) -> None:
    counts = [0.0]
    for _ in range(120):  # a step takes 10 ms, and 0.02 ms more for each before it
        counts.append(counts[-1] + 1 / (0.01 + 0.00002 * counts[-1]))
    series = Series("step_count", *counts)
    found = case.finding(slow_down, HEALTHY, series=[series], seconds=120)
    gain = 120 / counts[-1] / 0.01
    assert gain < there(found.gain_bound) < 2 * gain


@pytest.mark.parametrize(
    "rates",
    [
        [20.0] * 120,
        [10.0] * 60 + [20.0] * 60,
        [5.0, 35.0] * 30 + [4.0, 28.0] * 30,
        [20.0] * 20 + [5.0] * 40,
    ],
    ids=["even", "faster", "unsteady", "short"],
)
def test_steps_that_do_not_surely_take_longer_are_none(case: Case, rates: list[float]) -> None:
    assert case.found(slow_down, HEALTHY, series=[counted(*rates)], seconds=len(rates)) is None


def test_counts_of_one_place_tell_of_no_first_step() -> None:
    paces = [_Pace(at_s * SECOND_NS, 10.0, 20.0, 1.0) for at_s in range(3)]

    assert _first_s(paces, paces[0]) == 0
