"""The rule on environments of an agent in processes of their own."""

from __future__ import annotations

from functools import partial

from profd.daemon.analyze.phases import DATA_WAIT
from profd.daemon.analyze.selection import Selection
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import Finding, Measure
from profd.daemon.frameworks.frames import means
from profd.daemon.units import percent

_CHEAP = 0.5
"""Environments that compute for less than this part of the wait take less time than the asking."""


def environments(context: FindingContext) -> Finding | None:
    """Return the wait for environments of an agent in processes of their own.

    A question to a process and its answer take some hundred microseconds: a cheap step is faster in
    this process.
    """
    share = context.share_of(partial(_waits_for_environments, context))
    # This spares the look at the processes.
    if context.severity("input-bound-environments-cheap", share.low) is None:
        return None
    trainers = {row.id for row in context.trainers}
    others = context.reader.processes.keys() - trainers
    looks = (_busy_with_environments(context, process) for process in sorted(others))
    busy = [one for one in looks if one is not None]
    if not busy:
        return None
    each = Measure("environments busy", sum(busy) / len(busy))
    cases = {"of-ray": bool(context.stacks_of("env runner"))}
    is_cheap = sum(busy) < _CHEAP * share.value
    return context.finding(
        "input-bound-environments-cheap" if is_cheap else "input-bound-environments",
        share,
        each,
        cases=cases,
        environments="env runners" if cases["of-ray"] else "environments",
        busy=percent(each.value),
    )


def _waits_for_environments(context: FindingContext, stack: int) -> bool:
    return context.phases.of_stack(stack) == DATA_WAIT and context.means(stack, "environments")


def _busy_with_environments(context: FindingContext, process: int) -> float | None:
    """Return the share of the time in which a process steps environments; None if it has none."""
    alone = Selection(*context.time, frozenset({process}), thread="MainThread")
    profile = context.profile_on(alone)
    stepping = {stack for stack in profile.time_ns if context.means(stack, "environments")}
    waiting = {stack for stack in profile.time_ns if means(context.leaf(stack), "asked")}
    whole_ns = profile.spent_ns(stepping | waiting)
    return profile.spent_ns(stepping - waiting) / whole_ns if stepping and whole_ns else None
