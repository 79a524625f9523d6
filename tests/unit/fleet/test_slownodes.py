"""Differences of means have the errors that textbooks give them, and bounds that hold as often as
they say.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.fleet.reduction import RunPart, Stepped
from profd.daemon.fleet.slownodes import (
    Gap,
    RunSteps,
    combined,
    find_slow_nodes,
    gap,
)


def test_student_by_hand_and_gaps_weigh_as_much_as_they_have_values() -> None:
    found = gap([3.0, 5.0], [1.0, 1.0, 4.0])
    assert (found.value, found.freedom) == (2.0, 3)
    assert found.error == pytest.approx(((2 + 6) / 3 * (1 / 2 + 1 / 3)) ** 0.5)
    found = combined([Gap(1.0, 0.3, 4, 1.0), Gap(4.0, 0.6, 6, 2.0)])
    assert (found.value, found.error) == pytest.approx((3.0, (0.1**2 + 0.4**2) ** 0.5))
    assert found.freedom == int((0.01 + 0.16) ** 2 / (0.01**2 / 4 + 0.16**2 / 6))


def test_a_single_value_tells_by_how_others_vary() -> None:
    found = gap([4.0], [1.0, 2.0, 3.0])
    assert (found.value, found.freedom) == (2.0, 2)
    assert found.error == pytest.approx((4 / 3) ** 0.5)
    one = Gap(0.0, 1.0, 10)
    assert one.bounds(1) == pytest.approx((-2.228, 2.228), abs=1e-3)
    assert one.bounds(10)[1] == pytest.approx(3.581, abs=0.01)


@pytest.mark.parametrize("jobs", [1, 12])
def test_bounds_of_many_jobs_with_few_runs_hold(jobs: int) -> None:
    chance = random.Random(jobs)
    held = 0
    for _ in range(400):
        gaps = [
            gap([chance.gauss(0, 1)], [chance.gauss(0, 1) for _ in range(3)]) for _ in range(jobs)
        ]
        low, high = combined(gaps).bounds(1)
        held += low <= 0 <= high
    assert held >= 370


HOUR_NS = 3600 * SECOND_NS
NODES = ("a", "b", "c", "d", "e", "f")


def run(
    node: str,
    step_ms: float,
    *,
    job: str = "job",
    command: str = "train.py",
    collective: float = 0.0,
) -> RunSteps:
    name = f"{job}-{node}-{step_ms}-{command}"
    part = RunPart(name, job, node, command)
    spent = {
        "collective": round(collective * HOUR_NS),
        "forward": round((1 - collective) * HOUR_NS),
    }
    return RunSteps(part, {0: Stepped(round(3600e3 / step_ms * 1e6), HOUR_NS)}, {0: spent})


def found(runs: Iterable[RunSteps], least: float = 0.02) -> list[str]:
    return [one.node for one in find_slow_nodes(runs, least)[0]]


def runs_of(step_ms: float, spread: float, chance: random.Random, count: int = 4) -> list[RunSteps]:
    return [
        run(node, step_ms * chance.lognormvariate(0, spread))
        for node in NODES
        for _ in range(count)
    ]


def test_slow_nodes_are_named_with_bounds_around_the_truth_and_hide_no_other() -> None:
    chance = random.Random(1)
    runs = [
        *runs_of(100, 0.02, chance),
        *(run("slow", 130 * chance.lognormvariate(0, 0.02)) for _ in range(4)),
    ]
    [slow], compared = find_slow_nodes(runs, 0.02)
    assert (slow.node, slow.runs, slow.jobs, compared) == ("slow", 4, ("job",), 7)
    assert slow.low < 1.3 < slow.high
    for seed in range(5):
        assert found(runs_of(100, 0.1, random.Random(seed), 2)) == []  # they are alike
    chance = random.Random(2)
    runs = runs_of(100, 0.02, chance, 2)
    runs += [
        run(node, ms * chance.lognormvariate(0, 0.02))
        for node, ms in (("x", 300), ("y", 115))
        for _ in range(2)
    ]
    assert found(runs) == ["x", "y"]


def test_a_node_with_one_run_is_judged_by_how_others_vary() -> None:
    for others, one_ms, slow in (
        ((98, 99, 100, 101, 102, 100), 140, ["x"]),
        ((70, 80, 100, 120, 130, 140), 145, []),
    ):
        runs = [run(node, ms) for node, ms in zip(NODES, others, strict=True)]
        assert found([*runs, run("x", one_ms)]) == slow
    assert find_slow_nodes([*runs[:2], run("x", 900)], 0.02) == ([], 0)  # too few to tell


def test_other_commands_and_waits_for_others_are_no_measure() -> None:
    runs = [run(node, 100 + number) for number, node in enumerate(NODES)]
    assert found([*runs, run("x", 200, command="train.py --large")]) == []
    assert found([*runs, run("x", 200, job="other")]) == []
    assert found([*runs, run("x", 200)]) == ["x"]
    runs = [run(node, 100 + number, collective=0.1) for number, node in enumerate(NODES)]
    assert found([*runs, run("x", 150, collective=0.4)]) == []


def test_several_jobs_together_tell_what_none_tells_alone() -> None:
    chance = random.Random(4)
    runs = [
        run(node, ms * chance.lognormvariate(0, 0.06), job=f"job-{job}")
        for job in range(12)
        for node, ms in [*((node, 100.0) for node in NODES), ("x", 110.0)]
    ]
    assert found(one for one in runs if one.run.job == "job-0") == []
    assert found(runs) == ["x"]
