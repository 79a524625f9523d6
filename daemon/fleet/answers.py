"""The answers over all runs of a data set, as ``profd fleet --json`` writes them.

The fields are a promise to readers of the JSON: fields may be added, and ``version`` rises when one
changes its meaning. Hours are those of ranks (training processes) and of their GPUs.
"""

from __future__ import annotations

import msgspec

VERSION = 1


class Hours(msgspec.Struct, frozen=True):
    """Time of ranks, and of the GPUs of ranks.

    ``lost`` is that while GPUs were idle; ``idle`` is the part of it that was measured. If nobody
    read how busy GPUs were, or a rank has none, the time of phases that leave a GPU idle is lost.
    """

    ranks: float
    gpus: float
    ranks_lost: float
    gpus_lost: float
    gpus_idle: float


class PhaseCost(msgspec.Struct, frozen=True):
    """The time of the main threads of ranks in a phase. Phases add up to all time."""

    phase: str
    hours: Hours
    jobs: int


class FindingCost(msgspec.Struct, frozen=True):
    """What a rule found: hours that fixes can give back at most.

    Two rules may mean the same hours.
    """

    rule: str
    label: str
    ranks_lost_at_most: float
    gpus_lost_at_most: float
    jobs: int
    runs: int
    most_in: str  # the job that has most of it


class FunctionCost(msgspec.Struct, frozen=True):
    """The time in a function during a phase. Functions of one kind add up to all time."""

    function: str
    file: str
    phase: str
    hours: Hours
    jobs: int
    runs: int


class SlowNode(msgspec.Struct, frozen=True):
    """A node whose steps surely take longer than those of the same jobs and commands on others.

    They take ``times`` as long, with bounds that hold for all nodes at once (95 %). Time in
    collectives counts for neither.
    """

    node: str
    times: float
    low: float
    high: float
    jobs: tuple[str, ...]
    runs: int


class PhaseChange(msgspec.Struct, frozen=True):
    """A phase that surely takes more seconds of each step.

    Bounds of the difference hold for all phases of the job.
    """

    phase: str
    before_s: float
    now_s: float
    difference_low_s: float
    difference_high_s: float


class Slower(msgspec.Struct, frozen=True):
    """A job whose steps surely take longer in the last 7 days than in the compared week.

    They take ``times`` as long, with bounds that hold for all jobs at once (95 %). ``weeks_ago`` is
    1 for the week before. ``basis`` is what differs by chance: runs, or the days of one run.
    """

    job: str
    before_s: float
    now_s: float
    times: float
    low: float
    high: float
    weeks_ago: int
    before: int
    now: int
    basis: str
    phases: tuple[PhaseChange, ...]


class WeekPace(msgspec.Struct, frozen=True):
    """The mean seconds a step of a job in one week; 0 is the last seven days."""

    weeks_ago: int
    step_s: float
    runs: int


class JobPace(msgspec.Struct, frozen=True):
    """How a job steps from week to week, the oldest first, without its runs on slow nodes.

    ``why_untold`` is why it is not compared, if it is not.
    """

    job: str
    weeks: tuple[WeekPace, ...]
    why_untold: str | None


class Fleet(msgspec.Struct, frozen=True):
    """All answers over the runs in [since, until), times in UTC.

    ``phases``, ``findings``, ``functions`` (the innermost of the user's code, with what they call
    in libraries) and ``leaves`` (functions by themselves) begin with the largest loss or cost: that
    of GPUs, if there are any.
    """

    version: int
    since: str
    until: str
    runs: int
    jobs: int
    nodes: int
    samples: int
    hours: Hours
    phases: tuple[PhaseCost, ...]
    findings: tuple[FindingCost, ...]
    functions: tuple[FunctionCost, ...]
    leaves: tuple[FunctionCost, ...]
    slow_nodes: tuple[SlowNode, ...]
    nodes_compared: int
    slower: tuple[Slower, ...]
    paces: tuple[JobPace, ...]
