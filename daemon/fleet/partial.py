"""What some runs come to, and how such results become one: by adding integers, so that their order does not matter."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class RunPart(msgspec.Struct, frozen=True):
    """A run of one node: its job, where and when it ran, its training processes and their GPUs.

    ``world_size`` is how many ranks the job has on all its nodes; ``ranks`` of them are in this run.
    """

    run: str
    job: str
    node: str
    command: str
    started_ns: int
    ended_ns: int
    ranks: int
    gpus: int
    lived_ns: int
    gpu_lived_ns: int
    world_size: int

    @property
    def is_part(self) -> bool:
        """Whether other nodes have runs of the same job at the same time."""
        return self.world_size > self.ranks


class PhaseKey(msgspec.Struct, frozen=True):
    """A phase of a run on a day; day 0 is the last one looked at."""

    run: str
    day: int
    phase: str


class FunctionKey(msgspec.Struct, frozen=True):
    """A function of a job in a phase: the innermost one of the user's code, or (``is_leaf``) the innermost of all."""

    is_leaf: bool
    job: str
    phase: str
    function: str
    file: str


class RuleKey(msgspec.Struct, frozen=True):
    """A rule that found something in a job."""

    job: str
    rule: str


class DayKey(msgspec.Struct, frozen=True):
    """A run on a day."""

    run: str
    day: int


class Spent(msgspec.Struct, frozen=True):
    """Time of ranks, and of their GPUs; ``lost`` of it while GPUs were idle.

    Where nobody read how busy they were, the time of phases that leave them idle is lost. ``gpu_idle_ns`` is what was
    measured of ``gpu_lost_ns``. ``runs`` is how many runs it is from.
    """

    rank_ns: int = 0
    gpu_ns: int = 0
    lost_ns: int = 0
    gpu_lost_ns: int = 0
    gpu_idle_ns: int = 0
    runs: int = 0

    def plus(self, other: Spent) -> Spent:
        """Return the sum."""
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Spent(*(one + two for one, two in zip(mine, others, strict=True)))


class Found(msgspec.Struct, frozen=True):
    """What a rule found in some runs of a job: what a fix can give back at most."""

    label: str
    runs: int
    lost_ns: int
    gpu_lost_ns: int

    def plus(self, other: Found) -> Found:
        """Return the sum."""
        return Found(
            max(self.label, other.label),
            self.runs + other.runs,
            self.lost_ns + other.lost_ns,
            self.gpu_lost_ns + other.gpu_lost_ns,
        )


class Stepped(msgspec.Struct, frozen=True):
    """Millionths of steps, and the time that they took."""

    microsteps: int
    duration_ns: int


class Partial(msgspec.Struct, frozen=True):
    """What some runs come to, as pairs of keys and values."""

    runs: list[RunPart] = []
    phases: list[tuple[PhaseKey, Spent]] = []
    steps: list[tuple[DayKey, Stepped]] = []
    functions: list[tuple[FunctionKey, Spent]] = []
    findings: list[tuple[RuleKey, Found]] = []


def merged(parts: Iterable[Partial]) -> Partial:
    """Return what the runs of all parts come to, in an order of its own; no run is in two of them."""
    runs: list[RunPart] = []
    phases: list[tuple[PhaseKey, Spent]] = []
    steps: list[tuple[DayKey, Stepped]] = []
    functions: dict[FunctionKey, Spent] = {}
    findings: dict[RuleKey, Found] = {}
    for part in parts:
        runs += part.runs
        phases += part.phases
        steps += part.steps
        for function, spent in part.functions:
            functions[function] = functions[function].plus(spent) if function in functions else spent
        for rule, found in part.findings:
            findings[rule] = findings[rule].plus(found) if rule in findings else found
    return Partial(
        sorted(runs, key=lambda one: one.run),
        sorted(phases, key=_order),
        sorted(steps, key=_order),
        sorted(functions.items(), key=_order),
        sorted(findings.items(), key=_order),
    )


def _order(pair: tuple[msgspec.Struct, object]) -> tuple[object, ...]:
    return msgspec.structs.astuple(pair[0])
