"""All the rules, and what they find in a run: the gravest first, then what can bring most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from profd.daemon.analyze.findings import (
    allocator_churn,
    checkpoints,
    collectives,
    compilation,
    copies,
    cpu_limit,
    evaluations,
    garbage_collection,
    gpu_held_back,
    gpu_memory_limit,
    gpu_unused,
    hot_function,
    idle_cores,
    idle_workers,
    interpreter_lock,
    load_in_process,
    logging_stalls,
    memory_format,
    memory_growth,
    memory_limit,
    oversubscription,
    pcie_bound,
    precision,
    saturated_workers,
    shared_memory,
    slow_down,
    slow_start,
    small_batches,
    straggler,
    swapping,
    synchronization,
    unfused_optimizer,
)
from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import SEVERITIES, Finding
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.store.reader import RunReader


class Rule(Protocol):
    """One cause that slows trainings."""

    def __call__(self, case: Case) -> Finding | None:
        """Return the finding where the cause is surely there, None else."""


# Among findings that are equally grave, and of which no gain is told, the one comes first that names its cause best.
RULES: tuple[Rule, ...] = (
    straggler.find,
    collectives.find,
    load_in_process.find,
    saturated_workers.find,
    idle_workers.find,
    synchronization.find,
    checkpoints.find,
    logging_stalls.find,
    evaluations.find,
    hot_function.find,
    garbage_collection.find,
    interpreter_lock.find,
    unfused_optimizer.find,
    allocator_churn.find,
    idle_cores.find,
    oversubscription.find,
    memory_growth.find,
    memory_limit.find,
    shared_memory.find,
    gpu_memory_limit.find,
    cpu_limit.find,
    swapping.find,
    gpu_unused.find,
    small_batches.find,
    copies.find,
    pcie_bound.find,
    precision.find,
    memory_format.find,
    gpu_held_back.find,
    slow_start.find,
    slow_down.find,
    compilation.find,
)


OF_THE_RUN: tuple[Rule, ...] = (memory_growth.find,)
"""Those that look at all of the run so far, whatever the selection: they take the most time by far."""


def find(
    reader: RunReader,
    selection: Selection = MAIN_THREADS,
    phases: PhaseIndex | None = None,
    rules: Iterable[Rule] = RULES,
) -> tuple[Finding, ...]:
    """Return what slows a run in a selection's range of time, over its processes, ranked."""
    case = Case(reader, selection, phases)
    return ranked(finding for rule in rules if (finding := rule(case)) is not None)


def ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order in which they are shown; those that are alike keep theirs."""
    return tuple(sorted(found, key=lambda one: (-SEVERITIES.index(one.severity), -(one.gain_bound or 1.0))))
