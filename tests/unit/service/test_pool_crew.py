"""The live sessions of the supervisor: their budget, and what becomes of those that end, with made-up sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.clocks import StoppedClock
from support.hostfakes import FakeSessions, FakeTable, Said, entry_of

from profd.daemon.errors import SessionFailed
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.jobs import Jobs
from profd.daemon.service.pool import SessionPool
from profd.daemon.service.processes import Census, Job, Rules
from profd.daemon.service.storage import Entry, RunRegistry
from profd.daemon.store.records import Identity

CONFIGURATION = Configuration(budget_percent=10, least_percent=2)


class Manned:
    """A crew with all that it needs."""

    def __init__(self, folder: Path) -> None:
        self.table, self.clock, self.said, self.sessions = FakeTable(), StoppedClock(), Said(), FakeSessions()
        self.jobs = Jobs(Census(self.table, self.clock), self.table, Rules(CONFIGURATION), self.said, self.clock)
        self.register = RunRegistry(folder / "daemon" / "host")
        self.ended: list[Entry] = []
        self.crew = SessionPool(
            CONFIGURATION, self.sessions, self.jobs, self.register, self.said, self.clock, self.ended.append
        )

    async def begin(self, *pids: int) -> None:
        self.crew.begin([Job(Identity(pid, 10 * pid), pid, "torch", ("python",)) for pid in pids])
        await self.crew.settle()

    async def end(self, pid: int) -> None:
        """Let a session end, and wait until that was noticed."""
        before = len(self.ended)
        self.sessions.end(pid)
        while len(self.ended) == before:
            await asyncio.sleep(0)
        await self.crew.settle()


@pytest.fixture
def manned(profd_home: Path) -> Manned:
    return Manned(profd_home)


async def test_sessions_share_one_budget_and_never_have_more(manned: Manned) -> None:
    await manned.begin(7)
    assert manned.sessions.parts == {7: 10.0}
    await manned.begin(8)
    assert manned.sessions.parts == {7: 5.0, 8: 5.0}
    await manned.begin(9, 10, 11)
    assert set(manned.sessions.parts.values()) == {2.0}
    assert manned.sessions.most_together == 10.0
    assert manned.crew.room == 0


async def test_who_is_left_gets_the_part_of_one_that_ends(manned: Manned) -> None:
    await manned.begin(7, 8)
    await manned.end(7)
    assert manned.sessions.parts == {8: 10.0}
    assert manned.crew.room == 4


async def test_what_was_spent_leaves_less_for_those_that_live(manned: Manned) -> None:
    await manned.begin(7)
    for second in range(1, 9):
        manned.clock.advance(1)
        manned.sessions.cpu = {7: 0.5 * second}
        manned.crew.meter()
        await manned.crew.settle()
    assert 2.0 <= manned.sessions.parts[7] < 10.0
    assert manned.crew.room == 2  # for so many starts 2 s of the 6 s of a minute are enough


async def test_what_a_session_took_before_it_ended_counts(manned: Manned) -> None:
    await manned.begin(7)
    manned.sessions.cpu = {7: 5.5}
    await manned.end(7)
    manned.clock.advance(1)
    manned.crew.meter()
    assert manned.crew.room == 0


async def test_a_session_that_ends_is_noted_with_its_reason(manned: Manned) -> None:
    await manned.begin(7)
    await manned.end(7)
    (entry,) = manned.ended
    assert (entry.why_ended, entry.ended_ns) == ("target-exited", manned.clock.at_ns)
    assert manned.register.entries() == [entry]
    assert manned.said.events == ["recording", "ended"]


async def test_a_job_that_cannot_be_recorded_is_told_once_and_takes_no_room(manned: Manned) -> None:
    manned.sessions.refusal = SessionFailed("ptrace_scope forbids it")
    await manned.begin(7)
    await manned.begin(7)
    assert manned.said.events == ["refused"]
    assert manned.crew.room == 5
    assert manned.crew.live == {}


async def test_an_adopted_session_shares_the_budget_too(manned: Manned) -> None:
    entry = entry_of(7, run=50)
    manned.sessions.adoptable = {entry.run_id}
    manned.sessions.cpu = {7: 500.0}  # of long ago
    assert manned.crew.adopt(entry)
    await manned.begin(8)
    manned.clock.advance(1)
    manned.crew.meter()
    await manned.crew.settle()
    assert manned.sessions.parts == {7: 5.0, 8: 5.0}
    assert not manned.crew.adopt(entry_of(9, run=51))


async def test_all_can_be_stopped(manned: Manned) -> None:
    await manned.begin(7, 8)
    await manned.crew.stop_all()
    assert [entry.why_ended for entry in manned.ended] == ["stopped", "stopped"]


async def test_a_quiet_job_gives_its_place_to_one_that_waits(manned: Manned) -> None:
    for pid in (7, 8):
        manned.table.add(pid, torch=True)
    manned.crew.begin(manned.jobs.poll(room=1))
    await manned.crew.settle()
    assert list(manned.sessions.live) == [7]
    for _ in range(8):
        manned.clock.advance(60)
        manned.jobs.poll(room=0)
    manned.crew.make_room()
    manned.crew.make_room()  # one at a time
    while not manned.ended:
        await asyncio.sleep(0)
    await manned.crew.settle()
    assert [entry.why_ended for entry in manned.ended] == ["quiet"]
    assert manned.said.events.count("released") == 1
    manned.clock.advance(60)
    manned.crew.begin(manned.jobs.poll(room=1))
    await manned.crew.settle()
    assert list(manned.sessions.live) == [8]


async def test_a_quiet_job_is_left_where_nobody_waits(manned: Manned) -> None:
    manned.table.add(7, torch=True)
    manned.crew.begin(manned.jobs.poll(room=1))
    await manned.crew.settle()
    for _ in range(8):
        manned.clock.advance(60)
        manned.jobs.poll(room=0)
    manned.crew.make_room()
    await manned.crew.settle()
    assert list(manned.sessions.live) == [7]
