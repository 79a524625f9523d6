"""All rules, what they find in a run, and the findings in a run file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, get_type_hints

import msgspec

from profd import daemon
from profd.daemon.analyze.phases import PhaseIndex, rules_in_force
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.findings import (
    course,
    cpu,
    environments,
    gpu,
    kinds,
    loading,
    loops,
    memory,
    overhead,
    parts,
    phases,
    ranks,
)
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import INFO, SEVERITIES, Finding
from profd.daemon.findings.rule import Rule, without_hidden
from profd.daemon.findings.texts import table
from profd.daemon.store import database
from profd.daemon.store.findings import findings_now, findings_of_whole
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Found

Answer = TypeVar("Answer")
_ANSWER = "SELECT value FROM answer WHERE question = ?"

RULES: tuple[Rule, ...] = (
    ranks.straggler,
    ranks.collectives,
    loading.load_in_process,
    phases.sampler,
    loading.starting_workers,
    loading.saturated_workers,
    loading.idle_workers,
    loading.awaited_input,
    environments.environments,
    loading.shared_memory,
    phases.synchronization,
    phases.checkpoints,
    phases.logging_stalls,
    phases.evaluations,
    phases.inference,
    phases.compilation,
    phases.anomaly_detection,
    phases.graphs_again,
    loops.hot_function,
    phases.unfused_optimizer,
    phases.small_batches,
    overhead.overhead,
    parts.part_of_model,
    parts.forward_without_gradients,
    parts.text_generation,
    parts.largest_part,
    cpu.interpreter_lock,
    cpu.idle_cores,
    cpu.oversubscription,
    cpu.cpu_limit,
    memory.garbage_collection,
    memory.allocator_churn,
    memory.memory_growth,
    memory.copied_pages,
    memory.memory_limit,
    memory.gpu_memory_limit,
    memory.swapping,
    course.slow_start,
    course.slow_down,
    gpu.gpu_error,
    gpu.gpu_unused,
    gpu.copies,
    gpu.pcie_bound,
    gpu.precision,
    gpu.memory_format,
    gpu.elementwise,
    gpu.gpu_held_back,
    gpu.tensor_cores_idle,
    gpu.underfilled,
    gpu.pcie_link,
    gpu.gpu_idle,
)
OF_THE_RUN: tuple[Rule, ...] = (memory.memory_growth, memory.copied_pages)
"""The rules that look at all of the run so far, for any selection.

They take the most time by far.
"""


def find(
    reader: RunReader,
    selection: Selection = MAIN_THREADS,
    phases: PhaseIndex | None = None,
    rules: Iterable[Rule] = RULES,
) -> tuple[Finding, ...]:
    """Return what slows a run in a selection's range of time, over its processes, ranked.

    Findings that others explain are left out.
    """
    context = FindingContext(reader, selection, phases)
    found = {rule: finding for rule in rules if (finding := context.once(rule)) is not None}
    return ranked(without_hidden(found))


def ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order in which they are shown: causes, symptoms, remarks.

    Within each group the gravest come first, then those with the largest bound, then the table's
    order decides. A remark on a line comes before a symptom whose bound is lower: it may be what
    causes it.
    """
    places = {
        one.rule or name: number for number, (name, one) in enumerate(table().finding.items())
    }
    symptoms = {one.rule or name for name, one in table().finding.items() if one.is_symptom}
    found = tuple(found)
    warned = (one for one in found if one.rule in symptoms and one.severity != INFO)
    highest = max(map(_bound_of, warned), default=math.inf)

    def place(one: Finding) -> tuple[float, ...]:
        group = _group_of(one, highest, is_symptom=one.rule in symptoms)
        gravest = (-SEVERITIES.index(one.severity), -_bound_of(one))
        return (group, *gravest, places.get(one.rule, len(table().finding)))

    return tuple(sorted(found, key=place))


def _bound_of(one: Finding) -> float:
    return one.gain_bound or 1.0


def _group_of(one: Finding, highest: float, *, is_symptom: bool) -> int:
    if one.severity != INFO:
        return 2 if is_symptom else 0
    return 1 if one.evidence.line and _bound_of(one) > highest else 3


def findings_in(reader: RunReader, selection: Selection, phases: PhaseIndex) -> tuple[Finding, ...]:
    """Return what slows a run in a selection's range of time, over its processes, ranked.

    The findings of a whole run come from its file, unless other rules made them than those in force
    here.
    """
    narrowed = (selection.from_ns, selection.to_ns, selection.processes, selection.rank)
    if narrowed == (None, None, None, None) and is_whole_run_analyzed(reader):
        return whole_findings(reader)
    return find(reader, selection, phases)


def is_whole_run_analyzed(reader: RunReader) -> bool:
    """Say whether the file has the findings of the whole run by the rules in force here."""
    return reader.info.findings_made_by == analysis_name()


def whole_findings(reader: RunReader) -> tuple[Finding, ...]:
    """Return what slowed the whole run as its file has it, ranked; the file may have nothing."""
    return as_findings(reader.path, findings_of_whole(reader))


def answered(
    take: Callable[..., Answer],
    reader: RunReader,
    selection: Selection = MAIN_THREADS,
    *more: object,
) -> Answer:
    """Return what ``take`` gives for a selection, of a whole run from its file if that has it.

    The file names an answer as the function. Raises RunUnreadable if it is damaged.
    """
    if selection == MAIN_THREADS and reader.has_table("answer"):
        kept = reader.value(bytes | None, _ANSWER, take.__name__)
        if kept is not None and is_whole_run_analyzed(reader):
            with database.reading(reader.path):
                found: Answer = msgspec.msgpack.decode(kept, type=get_type_hints(take)["return"])
                return found
    return take(reader, selection, *more)


def shows_imports(findings: Iterable[Finding]) -> bool:
    """Say whether a graph opens with imports in it: they are hidden, unless they are a finding."""
    return any(one.rule == "slow-start" for one in findings)


def present_findings(reader: RunReader) -> tuple[Finding, ...]:
    """Return what slows a live run now, ranked."""
    return ranked(as_findings(reader.path, findings_now(reader)))


def as_stored(findings: Iterable[Finding]) -> tuple[Found, ...]:
    return tuple(
        Found(one.rule, one.severity, one.title, msgspec.json.encode(one).decode())
        for one in findings
    )


def analysis_name() -> str:
    """Return the name of this analysis: profd's version and a hash of all tables in force."""
    import hashlib  # at the end of a run alone

    tables = rules_in_force(), kinds.load_kinds(), table()
    return (
        f"profd {daemon.VERSION}, tables "
        f"{hashlib.sha256(msgspec.json.encode(tables)).hexdigest()[:16]}"
    )


def as_findings(run_file: Path, stored: Iterable[Found]) -> tuple[Finding, ...]:
    """Return the findings of a run file; raises RunUnreadable if one is damaged."""
    with database.reading(run_file):
        return tuple(msgspec.json.decode(one.report, type=Finding) for one in stored)
