"""When a job is said to have got slower, and why nothing is said where chance cannot be told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.fleet.paces import DAYS, RUNS, RunPaces, find_slower
from profd.daemon.fleet.reduction import RunPart, Spent, Stepped

DAY_S = 86_400


def run(
    name: str,
    step_ms: Mapping[int, float],
    *,
    node: str = "a",
    world_size: int = 1,
    wait: float = 0.2,
    job: str = "job",
) -> RunPaces:
    """Return a run that takes so long for a step on some days, ``wait`` of it waiting for data."""
    started_ns = -max(step_ms) * DAY_S * SECOND_NS
    part = RunPart(name, job, node, "train.py", started_ns, 0, 1, 1, 0, 0, world_size)
    second = 10**6
    steps = {day: Stepped(round(3600e3 / ms * second), 3600 * SECOND_NS) for day, ms in step_ms.items()}
    spent = {"data wait": Spent(rank_ns=round(wait * 1e12)), "forward": Spent(rank_ns=round((1 - wait) * 1e12))}
    return RunPaces(part, steps, dict.fromkeys(step_ms, spent))


def week(prefix: str, day: int, *step_ms: float) -> list[RunPaces]:
    return [run(f"{prefix}{number}", {day: ms}) for number, ms in enumerate(step_ms)]


def test_runs_that_are_surely_slower_than_the_newest_earlier_week() -> None:
    [slower], [pace] = find_slower([*week("a", 8, 100, 101, 99), *week("b", 1, 120, 121, 119)], 0.02)
    assert (slower.job, slower.basis, slower.before, slower.now, slower.weeks_ago) == ("job", RUNS, 3, 3, 1)
    assert slower.low < 1.2 < slower.high
    assert [one.step_s for one in pace.weeks] == [pytest.approx(0.1, rel=1e-3), pytest.approx(0.12, rel=1e-3)]
    [slower], _ = find_slower([*week("a", 22, 100, 101), *week("b", 29, 50, 51), *week("c", 1, 150, 151)], 0.02)
    assert slower.weeks_ago == 3
    assert slower.times == pytest.approx(1.5, rel=0.01)
    days = {day: (100.0 if day > 6 else 130.0) + day % 2 for day in range(14)}
    [slower], _ = find_slower([run("long", days)], 0.02)
    assert (slower.basis, slower.before, slower.now) == (DAYS, 7, 7)
    assert slower.low < 1.3 < slower.high


def test_a_faster_or_hardly_slower_job_or_one_run_a_week_is_not_slower() -> None:
    slower, [pace] = find_slower([*week("a", 8, 100, 130, 85), *week("b", 1, 120, 140, 90)], 0.02)
    assert slower == []
    assert pace.why_untold is None
    runs = [*week("a", 8, 100, 100, 100), *week("b", 1, 101, 101, 101)]
    assert find_slower(runs, 0.02)[0] == []
    assert len(find_slower(runs, 0.005)[0]) == 1
    assert find_slower([*week("a", 8, 120, 121), *week("b", 1, 100, 101)], 0.02)[0] == []
    slower, [pace] = find_slower([*week("a", 8, 100), *week("b", 1, 150)], 0.02)
    assert slower == []
    assert pace.why_untold == "one run a week tells nothing of how much runs differ by chance"


def test_nodes_of_one_execution_are_one_run() -> None:
    nodes = [run(f"a{node}", {8: 100 + node}, node=f"n{node}", world_size=4) for node in range(4)]
    nodes += [run(f"b{node}", {1: 120 + node}, node=f"n{node}", world_size=4) for node in range(4)]
    slower, [pace] = find_slower(nodes, 0.02)
    assert slower == []
    assert [one.runs for one in pace.weeks] == [1, 1]
    assert pace.why_untold is not None
    alone = [run(one.run.run, {one.days(1)[0] if one.days(1) else 1: 100 if one.days(1) else 120}) for one in nodes]
    assert len(find_slower(alone, 0.02)[0]) == 1


def test_the_phase_that_grew_is_named_and_the_job_that_got_slowest_comes_first() -> None:
    before = [run(f"a{number}", {8: ms}, wait=0.2) for number, ms in enumerate((100, 101, 99))]
    now = [run(f"b{number}", {1: ms}, wait=0.36) for number, ms in enumerate((125, 126, 124))]
    [slower], _ = find_slower([*before, *now], 0.02)
    assert [one.phase for one in slower.phases] == ["data wait"]
    assert slower.phases[0].before_s == pytest.approx(0.02, rel=0.01)
    assert slower.phases[0].now_s == pytest.approx(0.045, rel=0.01)

    def of(job: str, day: int, *step_ms: float) -> list[RunPaces]:
        return [run(f"{job}{day}{number}", {day: ms}, job=job) for number, ms in enumerate(step_ms)]

    runs = [*of("a", 8, 100, 101), *of("a", 1, 120, 121), *of("b", 8, 100, 101), *of("b", 1, 160, 161)]
    both, _ = find_slower(runs, 0.02)
    assert [one.job for one in both] == ["b", "a"]


def test_among_many_jobs_chance_has_to_be_smaller() -> None:
    runs = [*week("a", 8, 100, 101, 99.5), *week("b", 1, 103.2, 104.5, 102.5)]
    assert len(find_slower(runs, 0.02)[0]) == 1
    others = [
        run(f"{job}{number}", {day: 100.0 + number}, job=job)
        for job in map(str, range(50))
        for number, day in enumerate((8, 8, 1, 1))
    ]
    assert find_slower([*runs, *others], 0.02)[0] == []
