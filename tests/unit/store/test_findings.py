"""When findings came and went, as the rows and events of a run file say it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.synthetic import STARTED_NS, describe, main_process, run_started

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.events import EventKind
from profd.daemon.store import database
from profd.daemon.store.findings import RuleFound, findings_now, findings_of_whole, rules_found
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import AnalysisLost, FindingsTaken, Found, Record, RunEnded
from profd.daemon.store.rows import FindingRow
from profd.daemon.store.tables import Tables

WAITS = Found("input-bound", "warning", "input-bound: waits 61 %", "{}")
FULL = Found("memory-limit", "critical", "memory: 98 % full", "{}")
INFO = Found("slow-start", "info", "startup: 20 s", "{}")


class Run:
    """A run file that is written second by second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tables = Tables(database.create(path), describe)
        self.tables.begin(run_started())
        self.tables.commit([main_process()])

    def find(self, second: int, *found: Found, made_by: str | None = None) -> None:
        self.put(FindingsTaken(at(second), found, made_by))

    def put(self, record: Record) -> None:
        self.tables.commit([record])

    def reader(self) -> RunReader:
        return RunReader(self.path)

    def now(self) -> list[tuple[str, int]]:
        """Return the titles of the findings that hold, and since when they do."""
        with self.reader() as reader:
            return [(row.title, second(row.from_ns)) for row in findings_now(reader)]

    def events(self) -> list[tuple[int, str]]:
        with self.reader() as reader:
            return [
                (second(event.at_ns), event.text)
                for event in reader.events()
                if event.kind == EventKind.FINDING
            ]


def at(second: int) -> int:
    return STARTED_NS + second * SECOND_NS


def second(at_ns: int) -> int:
    return (at_ns - STARTED_NS) // SECOND_NS


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "a.profd")
    yield run
    run.tables.close()


def test_a_finding_has_one_row_for_as_long_as_it_holds_with_its_latest_words(run: Run) -> None:
    run.find(10, WAITS)
    run.find(20, FULL, Found(WAITS.rule, WAITS.severity, "input-bound: waits 70 %", '{"now": 1}'))
    assert run.now() == [("input-bound: waits 70 %", 10), (FULL.title, 20)]
    with run.reader() as reader:
        assert findings_now(reader)[0].report == '{"now": 1}'
    run.find(30, FULL)  # the first analysis without it
    assert run.now() == [(FULL.title, 20)]
    with run.reader() as reader:
        assert rules_found(reader) == [
            RuleFound("input-bound", "warning", holds=False), RuleFound("memory-limit", "critical", holds=True)
        ]  # fmt: skip
    run.find(
        40, Found(FULL.rule, "warning", "memory: 90 % full", "{}")
    )  # of another severity it is another one
    assert run.now() == [("memory: 90 % full", 40)]


def test_coming_and_going_are_events_and_what_is_worth_knowing_is_none(run: Run) -> None:
    run.find(10, WAITS, INFO)
    run.find(20, INFO)
    assert run.events() == [(10, WAITS.title)]
    run.find(80)
    run.find(90)
    run.find(200)
    assert run.events() == [(10, WAITS.title), (20, f"no longer found: {WAITS.title}")]


def test_what_comes_and_goes_every_few_seconds_stays_one_row_and_one_event(run: Run) -> None:
    for second in range(10, 600, 20):
        run.find(second, WAITS)
        run.find(second + 10)
    assert run.events() == [(10, WAITS.title)]
    run.find(610, WAITS)
    assert run.now() == [(WAITS.title, 10)]
    for second in (620, 690, 800):  # it comes again after a while
        run.find(second)
    run.find(810, WAITS)
    run.find(820)
    run.put(RunEnded(at(830), "stopped"))
    assert [second for second, _ in run.events()] == [10, 620, 810, 820]


def test_without_an_analysis_nothing_is_known_to_hold(run: Run) -> None:
    run.find(10, WAITS)
    run.put(AnalysisLost(at(20)))
    assert run.now() == []
    with run.reader() as reader:
        assert (reader.info.analyzed_ns, reader.info.analysis_lost_ns) == (at(10), at(20))
    run.find(30, WAITS)
    assert run.now() == [(WAITS.title, 10)]
    with run.reader() as reader:
        assert (reader.info.analyzed_ns, reader.info.analysis_lost_ns) == (at(30), None)


def test_the_findings_of_the_whole_run_stand_by_themselves(run: Run) -> None:
    run.find(10, WAITS)
    with run.reader() as reader:
        assert (findings_of_whole(reader), reader.info.findings_made_by) == ([], None)
    run.find(30, FULL, made_by="0.1")
    assert run.now() == [(WAITS.title, 10)]
    assert run.events() == [(10, WAITS.title)]
    with run.reader() as reader:
        assert reader.info.findings_made_by == "0.1"
        assert findings_of_whole(reader) == [
            FindingRow(FULL.rule, FULL.severity, FULL.title, FULL.report, 2, True, at(30), None)
        ]


@pytest.mark.parametrize(
    "column", ["title = x'00'", "from_ns = -1", "to_ns = 'x'", "report = x'00'"]
)
def test_a_damaged_row_is_said(run: Run, column: str) -> None:
    run.find(10, WAITS, made_by="0.1")
    with contextlib.closing(sqlite3.connect(run.path)) as connection, connection:
        connection.execute(f"UPDATE finding SET {column}")
    with run.reader() as reader, pytest.raises(RunUnreadable):
        findings_of_whole(reader)
