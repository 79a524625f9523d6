"""All the rules, and what they find in a run: the gravest first, then what can bring most."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.findings import course, cpu, gpu, loading, memory, phases, ranks
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import SEVERITIES, Finding
from profd.daemon.store.reader import RunReader

Rule = Callable[[FindingContext], Finding | None]
"""Looks for one cause that slows trainings; returns the finding where the cause is surely there, None else."""

# Among findings that are equally grave, and whose gain is unknown, the one comes first that names its cause best.
RULES: tuple[Rule, ...] = (
    ranks.straggler,
    ranks.collectives,
    loading.load_in_process,
    loading.saturated_workers,
    loading.idle_workers,
    phases.synchronization,
    phases.checkpoints,
    phases.logging_stalls,
    phases.evaluations,
    phases.hot_function,
    memory.garbage_collection,
    cpu.interpreter_lock,
    phases.unfused_optimizer,
    memory.allocator_churn,
    cpu.idle_cores,
    cpu.oversubscription,
    memory.memory_growth,
    memory.memory_limit,
    loading.shared_memory,
    memory.gpu_memory_limit,
    cpu.cpu_limit,
    memory.swapping,
    gpu.gpu_unused,
    phases.small_batches,
    gpu.copies,
    gpu.pcie_bound,
    gpu.precision,
    gpu.memory_format,
    gpu.gpu_held_back,
    course.slow_start,
    course.slow_down,
    phases.compilation,
)


OF_THE_RUN: tuple[Rule, ...] = (memory.memory_growth,)
"""Those that look at all of the run so far, whatever the selection: they take the most time by far."""


def find(
    reader: RunReader,
    selection: Selection = MAIN_THREADS,
    phases: PhaseIndex | None = None,
    rules: Iterable[Rule] = RULES,
) -> tuple[Finding, ...]:
    """Return what slows a run in a selection's range of time, over its processes, ranked."""
    context = FindingContext(reader, selection, phases)
    return ranked(finding for rule in rules if (finding := rule(context)) is not None)


def ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order in which they are shown; those that are alike keep theirs."""
    return tuple(sorted(found, key=lambda one: (-SEVERITIES.index(one.severity), -(one.gain_bound or 1.0))))
