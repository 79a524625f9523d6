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


class Manned:
    """A desk that works."""

    def __init__(self, folder: Path) -> None:
        self.reporter, self.said, self.register = FakeReporter(), Said(), RunRegistry(folder / "daemon" / "host")
        self.written = 0
        self.desk = ReportQueue(self.reporter, self.register, self.said, self._count)

    def _count(self) -> None:
        self.written += 1


@pytest.fixture
async def manned(profd_home: Path) -> AsyncIterator[Manned]:
    made = Manned(profd_home)
    work = asyncio.ensure_future(made.desk.work())
    yield made
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def test_every_report_is_written_and_noted(manned: Manned) -> None:
    for run in (1, 2):
        manned.desk.ask(entry_of(7, run=run, ended_ns=5))
    await manned.desk.until_idle()
    assert [entry.is_reported for entry in manned.register.entries()] == [True, True]
    assert (manned.written, manned.said.events) == (2, ["reported", "reported"])
    assert manned.desk.in_work == frozenset()


async def test_the_report_of_a_live_run_is_not_its_last(manned: Manned) -> None:
    live = entry_of(7)
    manned.desk.ask(live)
    await manned.desk.until_idle()
    (entry,) = manned.register.entries()
    assert not entry.is_reported
    manned.desk.ask(msgspec.structs.replace(live, ended_ns=5))
    await manned.desk.until_idle()
    (entry,) = manned.register.entries()
    assert entry.is_reported
    assert manned.reporter.reported == [live.run_id] * 2


async def test_a_run_that_ends_while_its_report_is_written_is_reported_again(manned: Manned) -> None:
    live = entry_of(7)
    ended = msgspec.structs.replace(live, ended_ns=5, why_ended="stopped")
    manned.reporter.meanwhile = lambda: manned.desk.ask(ended)
    manned.desk.ask(live)
    await manned.desk.until_idle()
    assert len(manned.reporter.reported) == 2
    (entry,) = manned.register.entries()
    assert (entry.why_ended, entry.is_reported) == ("stopped", True)


async def test_what_cannot_be_reported_is_told_and_left_for_the_next_supervisor(manned: Manned) -> None:
    manned.reporter.failing = True
    manned.desk.ask(entry_of(7, ended_ns=5))
    await manned.desk.until_idle()
    (entry,) = manned.register.entries()
    assert not entry.is_reported
    assert manned.said.events == ["unreported"]


async def test_an_incident_is_said_and_noted(manned: Manned) -> None:
    manned.reporter.incident = "input-bound: waits 61 %"
    manned.desk.ask(entry_of(7, ended_ns=5))
    await manned.desk.until_idle()
    (entry,), (line,) = manned.register.entries(), manned.said.lines
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
