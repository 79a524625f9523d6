"""The findings of a run as its file has them: what ``analyst`` found, which all that shows findings reads here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.findings.catalog import find, ranked
from profd.daemon.findings.finding import Finding
from profd.daemon.store import database
from profd.daemon.store.findings import findings_now, findings_of_whole
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Found
from profd.daemon.store.rows import FindingRow


def findings_in(reader: RunReader, selection: Selection, phases: PhaseIndex) -> tuple[Finding, ...]:
    """Return what slows a run in a selection's range of time, over its processes, ranked.

    Those of a whole run are read from its file, unless they were made by other rules than are in force here.
    """
    narrowed = (selection.from_ns, selection.to_ns, selection.processes, selection.rank)
    if narrowed == (None, None, None, None) and is_whole_run_analyzed(reader, phases):
        return whole_findings(reader)
    return find(reader, selection, phases)


def is_whole_run_analyzed(reader: RunReader, phases: PhaseIndex) -> bool:
    """Say whether the file has the findings of the whole run, by the rules that are in force here."""
    return reader.info.findings_made_by == analysis_name(phases)


def whole_findings(reader: RunReader) -> tuple[Finding, ...]:
    """Return what slowed the whole run by its file, which may not say so; ranked."""
    return as_findings(reader.path, findings_of_whole(reader))


def present_findings(reader: RunReader) -> tuple[Finding, ...]:
    """Return what slows a live run now, ranked."""
    return ranked(as_findings(reader.path, findings_now(reader)))


def as_stored(findings: Iterable[Finding]) -> tuple[Found, ...]:
    return tuple(Found(one.rule, one.severity, one.title, msgspec.json.encode(one).decode()) for one in findings)


def analysis_name(phases: PhaseIndex) -> str:
    """Return the name of this kind of analysis: this version of profd, and the rules of its phases."""
    rules = hashlib.sha256(msgspec.json.encode(phases.rules)).hexdigest()[:16]
    return f"profd {metadata.version('profd')}, phases {rules}"


def as_findings(run_file: Path, stored: Iterable[Found | FindingRow]) -> tuple[Finding, ...]:
    """Return findings that a run file has, or would take; raises RunUnreadable where one is damaged."""
    with database.reading(run_file):
        return tuple(msgspec.json.decode(one.report, type=Finding) for one in stored)
