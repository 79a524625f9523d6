"""All the rules, what they find in a run, and the findings that a run file has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from profd import daemon
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.findings import (
    course,
    cpu,
    environments,
    gpu,
    kinds,
    loading,
    memory,
    overhead,
    parts,
    phases,
    ranks,
)
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import INFO, SEVERITIES, Finding
from profd.daemon.findings.texts import table
from profd.daemon.store import database
from profd.daemon.store.findings import findings_now, findings_of_whole
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Found
from profd.daemon.store.rows import FindingRow

Rule = Callable[[FindingContext], Finding | None]
"""Looks for one cause that slows trainings.

Returns the finding where the cause is surely there, None else.
"""

RULES: tuple[Rule, ...] = (
    *(ranks.straggler, gpu.collectives),
    *(
        loading.load_in_process,
        loading.saturated_workers,
        loading.idle_workers,
        environments.environments,
    ),
    loading.shared_memory,
    *(
        gpu.synchronization,
        phases.checkpoints,
        phases.logging_stalls,
        phases.evaluations,
        phases.compilation,
    ),
    *(overhead.hot_function, phases.unfused_optimizer, phases.small_batches, overhead.overhead),
    *(
        parts.part_of_model,
        parts.forward_without_gradients,
        parts.text_generation,
        parts.largest_part,
    ),
    *(cpu.interpreter_lock, cpu.idle_cores, cpu.oversubscription, cpu.cpu_limit),
    *(memory.garbage_collection, gpu.memory_churn, memory.memory_growth, memory.memory_limit),
    *(memory.gpu_memory_limit, memory.swapping, course.slow_start, course.slow_down),
    *(gpu.gpu_error, gpu.gpu_unused, gpu.copies, gpu.pcie_bound, gpu.precision, gpu.memory_format),
    *(
        gpu.elementwise,
        gpu.gpu_held_back,
        gpu.tensor_cores_idle,
        gpu.underfilled,
        gpu.pcie_link,
        gpu.gpu_idle,
    ),
)
OF_THE_RUN: tuple[Rule, ...] = (memory.memory_growth,)
"""The rules that look at all of the run so far, whatever the selection.

They take the most time by far.
"""


def find(
    reader: RunReader,
    selection: Selection = MAIN_THREADS,
    phases: PhaseIndex | None = None,
    rules: Iterable[Rule] = RULES,
) -> tuple[Finding, ...]:
    """Return what slows a run in a selection's range of time, over its processes, ranked.

    That GPUs idle is left out where another finding above info shows the cause of half of it, and
    the largest part of a step where another one has a line. Where half of what a line takes has
    grown there, that it grows says more; and so does generating text, where that is half of a pass
    without gradients.
    """
    context = FindingContext(reader, selection, phases)
    found = [finding for rule in rules if (finding := context.once(rule)) is not None]
    lost = [
        one.evidence.measures[0].value
        for one in found
        if one.gain_bound is not None and one.severity != INFO
    ]
    idle = (one.evidence.measures[0].value for one in found if one.rule == "gpu-idle")
    left_out = {"gpu-idle"} if max(lost, default=0.0) >= next(idle, math.inf) / 2 else set()
    if any(one.evidence.line for one in found if one.rule != "largest-part"):
        left_out.add("largest-part")
    by_rule = {one.rule: one.evidence for one in found}
    made, unlearnt = by_rule.get("text-generation"), by_rule.get("forward-without-gradients")
    if made and unlearnt and made.measures[0].value >= unlearnt.measures[0].value / 2:
        left_out.add("forward-without-gradients")  # that is mostly the text
    grown, lost_there = by_rule.get("slow-down"), by_rule.get("overhead")
    if grown and lost_there and grown.line == lost_there.line:
        has_grown = 1 - 1 / grown.measures[0].value
        left_out |= {"overhead"} if has_grown >= lost_there.measures[0].value / 2 else set()
    return ranked(one for one in found if one.rule not in left_out)


def ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order in which they are shown: causes, symptoms, remarks.

    Among these the gravest first, then those with the largest bound; those that are alike in the
    table's order.
    """
    places = {
        one.rule or name: number for number, (name, one) in enumerate(table().finding.items())
    }
    symptoms = {one.rule or name for name, one in table().finding.items() if one.is_symptom}
    found = sorted(found, key=lambda one: places.get(one.rule, len(table().finding)))
    found = sorted(
        found, key=lambda one: (-SEVERITIES.index(one.severity), -(one.gain_bound or 1.0))
    )
    return tuple(sorted(found, key=lambda one: 2 if one.severity == INFO else one.rule in symptoms))


def findings_in(reader: RunReader, selection: Selection, phases: PhaseIndex) -> tuple[Finding, ...]:
    """Return what slows a run in a selection's range of time, over its processes, ranked.

    Those of a whole run are read from its file, unless they were made by other rules than are in
    force here.
    """
    narrowed = (selection.from_ns, selection.to_ns, selection.processes, selection.rank)
    if narrowed == (None, None, None, None) and is_whole_run_analyzed(reader, phases):
        return whole_findings(reader)
    return find(reader, selection, phases)


def is_whole_run_analyzed(reader: RunReader, phases: PhaseIndex) -> bool:
    """Say whether the file has the findings of the whole run by the rules in force here."""
    return reader.info.findings_made_by == analysis_name(phases)


def whole_findings(reader: RunReader) -> tuple[Finding, ...]:
    """Return what slowed the whole run by its file, which may not say so; ranked."""
    return as_findings(reader.path, findings_of_whole(reader))


def present_findings(reader: RunReader) -> tuple[Finding, ...]:
    """Return what slows a live run now, ranked."""
    return ranked(as_findings(reader.path, findings_now(reader)))


def as_stored(findings: Iterable[Finding]) -> tuple[Found, ...]:
    return tuple(
        Found(one.rule, one.severity, one.title, msgspec.json.encode(one).decode())
        for one in findings
    )


def analysis_name(phases: PhaseIndex) -> str:
    """Return the name of this kind of analysis.

    It stands for this version of profd and its tables, with those of the user.
    """
    import hashlib  # at the end of a run alone

    tables = phases.rules, kinds.load_kinds(), table()
    return (
        f"profd {daemon.VERSION}, tables "
        f"{hashlib.sha256(msgspec.json.encode(tables)).hexdigest()[:16]}"
    )


def as_findings(run_file: Path, stored: Iterable[Found | FindingRow]) -> tuple[Finding, ...]:
    """Return findings that a run file has, or would take.

    Raises RunUnreadable where one is damaged.
    """
    with database.reading(run_file):
        return tuple(msgspec.json.decode(one.report, type=Finding) for one in stored)
