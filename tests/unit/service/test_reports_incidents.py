"""What is told of live runs: each hang and each finding once, in the words of the run file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hostfakes import Said, entry_of
from support.metricvalues import put
from support.synthetic import LiveRun, live_run

from profd.daemon import paths
from profd.daemon.clock import SECOND_NS
from profd.daemon.service.reports import Incidents
from profd.daemon.service.sessions import run_file
from profd.daemon.service.storage import Entry
from profd.daemon.store.records import FindingsTaken, Found, HangFound, HangReport

ENTRY = entry_of(7)
LIVE = {ENTRY.run_id: ENTRY}
WAITS = Found("input-bound", "critical", "input-bound: waits 61 %", "{}")
FULL = Found("memory-limit", "warning", "memory: 92 % full", "{}")
HINT = Found("slow-start", "info", "startup: 20 s", "{}")


class Told:
    """The incidents of a host, what is said of them, and which reports are asked for."""

    def __init__(self) -> None:
        self.said = Said()
        self.reported: list[Entry] = []
        self.incidents = Incidents(self.said, self.reported.append)

    def look(self) -> list[tuple[str, str]]:
        """Look, and return all that was said so far."""
        self.incidents.look(LIVE)
        return [(line.event, line.message) for line in self.said.lines]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def run(profd_home: Path) -> Iterator[LiveRun]:
    paths.make_private(paths.runs_folder())
    with live_run(run_file(ENTRY.run_id), seconds=3) as run:
        yield run


def find(run: LiveRun, second: int, *found: Found) -> None:
    at_ns = run.started_ns + second * SECOND_NS
    put(run, FindingsTaken(at_ns, found), at_ns)


def test_a_finding_is_told_once_in_its_own_words(run: LiveRun, told: Told) -> None:
    assert told.look() == []
    find(run, 10, WAITS, HINT)
    find(run, 15, Found(WAITS.rule, WAITS.severity, "input-bound: waits 70 %", "{}"), HINT)
    assert told.look() == [("finding", "input-bound: waits 70 %")]
    find(run, 20, WAITS, FULL)
    assert told.look()[1:] == [("finding", FULL.title)]
    assert told.look()[2:] == []
    assert [(line.level, line.run, line.pid) for line in told.said.lines] == [("warning", ENTRY.run_id, 7)] * 2


def test_one_that_comes_again_after_a_while_is_told_again(run: LiveRun, told: Told) -> None:
    for second in (10, 200):
        find(run, second, WAITS)
        told.look()
        find(run, second + 5)
        told.look()
    find(run, 210, WAITS)  # it was hardly gone
    assert told.look() == [("finding", WAITS.title)] * 2


def test_a_hang_is_told_once_and_reported(run: LiveRun, told: Told) -> None:
    for second in (10, 30):
        at_ns = run.started_ns + second * SECOND_NS
        put(run, HangFound(at_ns, at_ns, "waits", HangReport("lock", ())), at_ns)
        told.look()
        told.look()
    assert told.look() == [("hang", "the run hangs")] * 2
    assert told.reported == [ENTRY] * 2


def test_a_file_that_cannot_be_read_is_said_and_hides_no_other(run: LiveRun, told: Told) -> None:
    find(run, 10, WAITS)
    lost = entry_of(8, run=2)
    told.incidents.look({lost.run_id: lost, **LIVE})
    assert told.said.events == ["unreadable", "finding"]
