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
