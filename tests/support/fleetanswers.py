"""Answers over many runs, as they are asked of a data set: small ones with numbers that are easy to follow."""

from __future__ import annotations

from profd.daemon.fleet.answers import (
    VERSION,
    FindingCost,
    Fleet,
    FunctionCost,
    Hours,
    JobPace,
    PhaseChange,
    PhaseCost,
    Slower,
    SlowNode,
    WeekPace,
)

HOSTILE = "\x1b[2J<b>&"
"""What a run file from elsewhere may have for a name."""


def hours(whole: float, lost: float, idle: float = 0.0, *, gpus: bool = True) -> Hours:
    """Return hours of ranks, each with a GPU or without one."""
    return Hours(whole, whole if gpus else 0.0, lost, lost if gpus else 0.0, idle)


def answers(*, gpus: bool = True, name: str = "job-a") -> Fleet:
    """Return what was found: 400 hours, 100 of them lost, a slow node, and a job that got slower."""
    function = FunctionCost("load", "/home/ada/data.py", "data wait", hours(150, 60, gpus=gpus), 1, 3)
    change = PhaseChange("data wait", 0.1, 0.15, 0.04, 0.06)
    return Fleet(
        version=VERSION, since="2026-11-01", until="2026-11-14", runs=12, jobs=1, nodes=3, samples=1_234_567,
        hours=hours(400, 100, gpus=gpus),
        phases=(
            PhaseCost("data wait", hours(100, 80, 60, gpus=gpus), 1),
            PhaseCost("forward", hours(300, 20, gpus=gpus), 1),
        ),
        findings=(FindingCost("slow-input", "Loading is slow", 40, 50, 1, 9, name),),
        functions=(function,), leaves=(),
        slow_nodes=(SlowNode(name, 1.25, 1.2, 1.3, tuple(f"job-{letter}" for letter in "abcdef"), 7),),
        nodes_compared=3,
        slower=(Slower(name, 0.5, 1.5, 3.0, 2.5, 3.5, 2, 4, 5, "runs", (change,)),),
        paces=(JobPace(name, (WeekPace(1, 0.5, 4), WeekPace(0, 1.5, 1)), None), JobPace("b", (), "it is new")),
    )  # fmt: skip


def nothing() -> Fleet:
    """Return the answers of a data set in which nothing is to be found."""
    return Fleet(
        version=VERSION, since="-", until="-", runs=0, jobs=0, nodes=0, samples=0, hours=hours(0, 0), phases=(),
        findings=(), functions=(), leaves=(), slow_nodes=(), nodes_compared=1, slower=(), paces=(),
    )  # fmt: skip
