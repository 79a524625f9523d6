"""The reports that the supervisor has written, one after the other, by a made-up reporter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from support.hostfakes import FakeReporter, Said, entry_of
from support.synthetic import write_run

from profd.daemon.errors import RunUnreadable
from profd.daemon.render.summary import summarize
from profd.daemon.service.reports import ReportQueue, read_incident
from profd.daemon.service.storage import RunRegistry
from profd.daemon.store.reader import RunReader


class Host:
    """A queue that works."""

    def __init__(self, folder: Path) -> None:
        self.reporter, self.said, self.registry = FakeReporter(), Said(), RunRegistry(folder / "daemon" / "host")
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


async def test_every_report_is_written_and_noted(host: Host) -> None:
    for run in (1, 2):
        host.queue.ask(entry_of(7, run=run, ended_ns=5))
    await host.until_idle()
    assert [entry.is_reported for entry in host.registry.entries()] == [True, True]
    assert (host.written, host.said.events) == (2, ["reported", "reported"])
    assert host.queue.in_work == frozenset()


async def test_the_report_of_a_live_run_is_not_its_last(host: Host) -> None:
    live = entry_of(7)
    host.queue.ask(live)
    await host.until_idle()
    (entry,) = host.registry.entries()
    assert not entry.is_reported
    host.queue.ask(msgspec.structs.replace(live, ended_ns=5))
    await host.until_idle()
    (entry,) = host.registry.entries()
    assert entry.is_reported
    assert host.reporter.reported == [live.run_id] * 2


async def test_a_run_that_ends_while_its_report_is_written_is_reported_again(host: Host) -> None:
    live = entry_of(7)
    ended = msgspec.structs.replace(live, ended_ns=5, why_ended="stopped")
    host.reporter.meanwhile = lambda: host.queue.ask(ended)
    host.queue.ask(live)
    await host.until_idle()
    assert len(host.reporter.reported) == 2
    (entry,) = host.registry.entries()
    assert (entry.why_ended, entry.is_reported) == ("stopped", True)


async def test_what_cannot_be_reported_is_told_and_left_for_the_next_supervisor(host: Host) -> None:
    host.reporter.failing = True
    host.queue.ask(entry_of(7, ended_ns=5))
    await host.until_idle()
    (entry,) = host.registry.entries()
    assert not entry.is_reported
    assert host.said.events == ["unreported"]


async def test_an_incident_is_said_and_noted(host: Host) -> None:
    host.reporter.incident = "input-bound: waits 61 %"
    host.queue.ask(entry_of(7, ended_ns=5))
    await host.until_idle()
    (entry,), (line,) = host.registry.entries(), host.said.lines
    assert entry.incident == line.message == "input-bound: waits 61 %"
    assert line.level == "warning"


def test_the_incident_is_that_of_the_summary(tmp_path: Path) -> None:
    summary = tmp_path / "s.json"
    with RunReader(write_run(tmp_path / "a.profd", exit_code=None, exit_signal=9)) as reader:
        found = summarize(reader)
    summary.write_bytes(msgspec.json.encode(found))
    assert read_incident(summary) == found.incident != ""
    summary.write_text("nothing")
    with pytest.raises(RunUnreadable):
        read_incident(summary)
