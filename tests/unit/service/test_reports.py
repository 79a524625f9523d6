"""What the log says of live runs: each hang and each finding once, in the words of the run file."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from support.hostfakes import FakeReporter, Said, entry_of
from support.metricvalues import put
from support.synthetic import LiveRun, live_run, write_run

from profd.daemon import paths, program
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ExitCode, RunUnreadable, SessionFailed
from profd.daemon.render.summary import summarize
from profd.daemon.service.reports import Incidents, ReportQueue, read_incident, write_report
from profd.daemon.service.sessions import run_file
from profd.daemon.service.storage import Entry, RunRegistry, RunStorage
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken, Found, HangFound, HangReport

ENTRY = entry_of(7)
LIVE = {ENTRY.run_id: ENTRY}
WAITS = Found("input-bound", "critical", "input-bound: waits 61 %", "{}")
FULL = Found("memory-limit", "warning", "memory: 92 % full", "{}")
HINT = Found("slow-start", "info", "startup: 20 s", "{}")


class Reports:
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
def reports() -> Reports:
    return Reports()


@pytest.fixture
def run(profd_home: Path) -> Iterator[LiveRun]:
    paths.make_private(paths.runs_folder())
    with live_run(run_file(ENTRY.run_id), seconds=3) as run:
        yield run


def find(run: LiveRun, second: int, *found: Found) -> None:
    at_ns = run.started_ns + second * SECOND_NS
    put(run, FindingsTaken(at_ns, found), at_ns)


def test_a_finding_is_logged_once_in_its_own_words(run: LiveRun, reports: Reports) -> None:
    assert reports.look() == []
    find(run, 10, WAITS, HINT)
    find(run, 15, Found(WAITS.rule, WAITS.severity, "input-bound: waits 70 %", "{}"), HINT)
    assert reports.look() == [("finding", "input-bound: waits 70 %")]
    find(run, 20, WAITS, FULL)
    assert reports.look()[1:] == [("finding", FULL.title)]
    assert reports.look()[2:] == []
    assert [(line.level, line.run, line.pid) for line in reports.said.lines] == [
        ("warning", ENTRY.run_id, 7)
    ] * 2


def test_a_finding_that_comes_again_after_a_while_is_logged_again(
    run: LiveRun, reports: Reports
) -> None:
    for second in (10, 200):
        find(run, second, WAITS)
        reports.look()
        find(run, second + 5)
        reports.look()
    find(run, 210, WAITS)  # it was hardly gone
    assert reports.look() == [("finding", WAITS.title)] * 2


def test_a_hang_is_logged_once_and_reported(run: LiveRun, reports: Reports) -> None:
    for second in (10, 30):
        at_ns = run.started_ns + second * SECOND_NS
        put(run, HangFound(at_ns, at_ns, "waits", HangReport("lock", ())), at_ns)
        reports.look()
        reports.look()
    assert reports.look() == [("hang", "the run hangs")] * 2
    assert reports.reported == [ENTRY] * 2


def test_a_file_that_cannot_be_read_is_said_and_hides_no_other(
    run: LiveRun, reports: Reports
) -> None:
    find(run, 10, WAITS)
    lost = entry_of(8, run=2)
    reports.incidents.look({lost.run_id: lost, **LIVE})
    assert reports.said.events == ["unreadable", "finding"]


class Host:
    """A queue that works."""

    def __init__(self, folder: Path) -> None:
        self.reporter, self.said, self.registry = (
            FakeReporter(),
            Said(),
            RunRegistry(folder / "daemon" / "host"),
        )
        self.written = 0
        self.queue = ReportQueue(self.reporter.report, self.registry, self.said, self._count)

    async def until_idle(self) -> None:
        while self.queue.in_work:
            await asyncio.sleep(0)

    def _count(self) -> None:
        self.written += 1


@pytest.fixture
async def host(profd_home: Path) -> AsyncIterator[Host]:
    made = Host(profd_home)
    work = asyncio.ensure_future(made.queue.work())
    yield made
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def test_every_report_is_written_and_noted_and_that_of_a_live_run_is_not_its_last(
    host: Host,
) -> None:
    live, ended = entry_of(7), entry_of(8, run=2, ended_ns=5)
    for entries, are_reported in (
        ((live, ended), [False, True]),
        ((msgspec.structs.replace(live, ended_ns=5),), [True, True]),
    ):
        for entry in entries:
            host.queue.ask(entry)
        await host.until_idle()
        assert [entry.is_reported for entry in host.registry.entries()] == are_reported
    assert host.reporter.reported == [live.run_id, ended.run_id, live.run_id]
    assert (host.written, host.said.events) == (3, ["reported"] * 3)
    assert host.queue.in_work == frozenset()


async def test_a_run_that_ends_while_its_report_is_written_is_reported_again(host: Host) -> None:
    live = entry_of(7)
    ended = msgspec.structs.replace(live, ended_ns=5, why_ended="stopped")
    host.reporter.meanwhile = lambda: host.queue.ask(ended)
    host.queue.ask(live)
    await host.until_idle()
    assert len(host.reporter.reported) == 2
    (entry,) = host.registry.entries()
    assert (entry.why_ended, entry.is_reported) == ("stopped", True)


@pytest.mark.parametrize(
    ("incident", "failing", "said"),
    [
        ("", False, "reported"),
        ("input-bound: waits 61 %", False, "reported"),
        ("", True, "unreported"),
    ],
    ids=[
        "nothing found",
        "an incident",
        "it cannot be reported, and is left for the next supervisor",
    ],
)
async def test_what_became_of_a_report_is_said_and_noted(
    host: Host, incident: str, failing: bool, said: str
) -> None:
    host.reporter.incident, host.reporter.failing = incident, failing
    host.queue.ask(entry_of(7, ended_ns=5))
    await host.until_idle()
    (entry,), (line,) = host.registry.entries(), host.said.lines
    assert (line.event, entry.incident, entry.is_reported) == (said, incident, not failing)
    assert line.level == ("warning" if incident or failing else "info")
    assert incident in line.message


async def test_a_report_is_written_without_the_rights_of_root(
    profd_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, words = tmp_path / "python", tmp_path / "words"
    python.write_text(f'#!/bin/sh\necho "$@" >>{words}\necho \'{{"incident": "none"}}\'\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    storage = RunStorage(paths.make_private(paths.runs_folder()), profd_home / "reports")
    assert await write_report(storage, ENTRY.run_id) == "none"
    begun = [
        line.partition(f" {run_file(ENTRY.run_id)}")[0] for line in words.read_text().splitlines()
    ]
    without = program.words("profd.daemon.rights")[1:]
    assert begun == [
        " ".join([*without, *program.words("profd", word)]) for word in ("summary", "report")
    ]


@pytest.mark.parametrize("code", [0, ExitCode.NO_SAMPLES, ExitCode.FAILURE])
async def test_a_run_without_samples_is_reported_like_others(
    profd_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho \'{{"incident": "nothing was read"}}\'\nexit {int(code)}\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    storage = RunStorage(paths.make_private(paths.runs_folder()), profd_home / "reports")
    expected = (
        contextlib.nullcontext() if code != ExitCode.FAILURE else pytest.raises(SessionFailed)
    )
    with expected:
        assert await write_report(storage, ENTRY.run_id) == "nothing was read"


def test_the_incident_is_that_of_the_summary(tmp_path: Path) -> None:
    summary = tmp_path / "s.json"
    with RunReader(write_run(tmp_path / "a.profd", exit_code=None, exit_signal=9)) as reader:
        found = summarize(reader)
    summary.write_bytes(msgspec.json.encode(found))
    assert read_incident(summary) == found.incident != ""
    summary.write_text("nothing")
    with pytest.raises(RunUnreadable):
        read_incident(summary)
