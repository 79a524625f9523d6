"""Findings as the run file has them: read where they are of the same analysis, looked for anew where they are not."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.synthetic import STARTED_NS, live_run, write_run

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.findings.analyst import Analyst
from profd.daemon.findings.catalog import analysis_name, as_stored, find, findings_in, present_findings
from profd.daemon.findings.finding import CRITICAL, INFO, Finding
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken

NARROWED = [
    Selection(from_ns=STARTED_NS + 5 * SECOND_NS, main_threads=True),
    Selection(to_ns=STARTED_NS + 15 * SECOND_NS, main_threads=True),
    Selection(processes=frozenset({1}), main_threads=True),
    Selection(rank=0, main_threads=True),
]


def write_analyzed(path: Path) -> tuple[Finding, ...]:
    """Write a run that was analyzed as a whole, in words that no rule has; return what was found."""
    plain = write_run(path.with_name("plain.profd"))
    with RunReader(plain) as reader:
        found = tuple(msgspec.structs.replace(one, title=f"as stored: {one.title}") for one in find(reader))
        name = analysis_name(PhaseIndex(reader))
    assert found
    write_run(path, also=[FindingsTaken(STARTED_NS, as_stored(found), name)])
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "a.profd"
    write_analyzed(path)
    return path


@contextlib.contextmanager
def reading(path: Path) -> Iterator[tuple[RunReader, PhaseIndex]]:
    with RunReader(path) as reader:
        yield reader, PhaseIndex(reader)


def change(path: Path, sql: str, *values: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, values).rowcount > 0


def test_a_run_that_was_analyzed_as_a_whole_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.profd"
    found = write_analyzed(path)
    with reading(path) as (reader, phases):
        assert findings_in(reader, MAIN_THREADS, phases) == found
        assert summarize(reader).findings == found


@pytest.mark.parametrize("selection", NARROWED)
def test_a_part_of_it_is_looked_at_anew(run: Path, selection: Selection) -> None:
    with reading(run) as (reader, phases):
        assert findings_in(reader, selection, phases) == find(reader, selection, phases)


def test_a_run_that_was_killed_is_looked_at(tmp_path: Path) -> None:
    with reading(write_run(tmp_path / "a.profd")) as (reader, phases):
        assert findings_in(reader, MAIN_THREADS, phases) == find(reader) != ()


def test_findings_of_another_version_or_by_other_rules_are_looked_for_anew(
    run: Path, profd_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reading(run) as (reader, phases):
        name = analysis_name(phases)
        monkeypatch.setattr("profd.daemon.findings.catalog.metadata.version", lambda _: "9.9")
        assert analysis_name(phases) != name
        assert findings_in(reader, MAIN_THREADS, phases) == find(reader)
    monkeypatch.undo()
    monkeypatch.setenv("PROFD_HOME", str(profd_home))
    profd_home.mkdir(exist_ok=True)
    (profd_home / "phases.toml").write_text('[[rule]]\nphase = "loss"\nfunction = ["none"]\n')
    with reading(run) as (reader, phases):
        assert findings_in(reader, MAIN_THREADS, phases) == find(reader)


def test_that_nothing_was_found_is_known(tmp_path: Path) -> None:
    with reading(write_run(tmp_path / "a.profd")) as (reader, phases):
        name = analysis_name(phases)
    with reading(write_run(tmp_path / "b.profd", also=[FindingsTaken(STARTED_NS, (), name)])) as (reader, phases):
        assert findings_in(reader, MAIN_THREADS, phases) == ()


def test_what_slows_a_live_run_now_is_ranked(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        taken = Analyst(run.path).look()
        mild, grave = (msgspec.json.decode(taken.findings[0].report, type=Finding) for _ in range(2))
        mild = msgspec.structs.replace(mild, rule="mild", severity=INFO)
        assert grave.severity == CRITICAL
        run.writer.put(FindingsTaken(taken.at_ns, as_stored((mild, grave))))
        run.advance()
        with RunReader(run.path) as reader:
            assert present_findings(reader) == (grave, mild)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("$.severity", "grim"),
        ("$.severity", "critical\n"),
        ("$.evidence.from_ns", -1),
        ("$.evidence.to_ns", 1 << 63),
        ("$.evidence.line.line", (1 << 64) - 1),
        ("$.evidence.measures[0].value", 1e308),
        ("$.gain_bound", 1e308),
        ("$.title", 7),
    ],
)
def test_a_hostile_report_is_refused(run: Path, place: str, value: object) -> None:
    change(
        run, f"UPDATE finding SET report = json_set(report, '{place}', json(?))", msgspec.json.encode(value).decode()
    )
    with reading(run) as (reader, phases), pytest.raises(RunUnreadable):
        findings_in(reader, MAIN_THREADS, phases)
