"""What all sessions of a host together may spend, minute by minute."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.clocks import StoppedClock
from support.hostfakes import FakeSessions, FakeTable, Said, entry_of

from profd.daemon.errors import SessionFailed
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.jobs import Jobs
from profd.daemon.service.scanner import HostJob
from profd.daemon.service.sessions import START_S, HostBudget, SessionPool
from profd.daemon.service.storage import Entry, RunRegistry
from profd.daemon.store.records import Identity

BUDGET = 10.0
SHARED = BUDGET - 100 * START_S / 60
"""What living sessions share: a start's part is kept."""


def spend(budget: HostBudget, clock: StoppedClock, cores: float, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1)
        budget.spend(cores)


def test_a_budget_is_all_there_until_it_is_spent_and_again_a_minute_later() -> None:
    budget = HostBudget(StoppedClock())
    parts = [budget.part(BUDGET, 2.0, sessions) for sessions in (0, 1, 2, 4)]
    assert parts == pytest.approx([SHARED, SHARED, SHARED / 2, SHARED / 4])
    assert budget.starts(BUDGET) == int(6 / START_S)
    clock = StoppedClock()
    budget = HostBudget(clock)
    spend(budget, clock, 0.5, 11)
    assert budget.starts(BUDGET) == 0
    assert budget.part(BUDGET, 2.0, 1) == pytest.approx(2.0)
    spend(budget, clock, 0.0, 60)
    assert budget.starts(BUDGET) > 5
    assert budget.part(BUDGET, 2.0, 1) == pytest.approx(SHARED)


def test_sessions_that_take_all_that_they_may_leave_room_for_the_next_one() -> None:
    clock = StoppedClock()
    budget = HostBudget(clock)
    for _ in range(180):
        spend(budget, clock, 2 * budget.part(BUDGET, 2.0, 2) / 100, 1)
        assert budget.starts(BUDGET) >= 1
    assert 2 * budget.part(BUDGET, 2.0, 2) == pytest.approx(SHARED)


def test_short_jobs_without_end_keep_every_minute_within_the_budget() -> None:
    clock = StoppedClock()
    budget = HostBudget(clock)
    spent = []
    for _ in range(300):
        spent.append(START_S if budget.starts(BUDGET) else 0.0)
        spend(budget, clock, spent[-1], 1)
    minutes = [sum(spent[second : second + 60]) for second in range(240)]
    assert max(minutes) <= 60 * BUDGET / 100 + 1e-9
    assert min(minutes) >= 60 * BUDGET / 100 - 2 * START_S


CONFIGURATION = Configuration(budget_percent=10, least_percent=2)


class Host:
    """A pool and its parts."""

    def __init__(self, folder: Path) -> None:
        self.table, self.clock, self.said, self.sessions = (
            FakeTable(),
            StoppedClock(),
            Said(),
            FakeSessions(),
        )
        self.jobs = Jobs(self.table, CONFIGURATION, self.said, self.clock)
        self.registry = RunRegistry(folder / "daemon" / "host")
        self.ended: list[Entry] = []
        self.pool = SessionPool(
            CONFIGURATION,
            self.sessions,
            self.jobs,
            self.registry,
            self.said,
            self.clock,
            self.ended.append,
        )

    async def begin(self, *pids: int) -> None:
        self.pool.begin(
            [HostJob(Identity(pid, 10 * pid), pid, "torch", ("python",), 1000) for pid in pids]
        )
        await self.pool.settle()

    async def end(self, pid: int) -> None:
        """Let a session end, and wait until that was noticed."""
        before = len(self.ended)
        self.sessions.end(pid)
        while len(self.ended) == before:
            await asyncio.sleep(0)
        await self.pool.settle()


@pytest.fixture
def host(profd_home: Path) -> Host:
    return Host(profd_home)


async def test_sessions_share_one_budget_and_others_get_the_part_of_an_ended_one(
    host: Host,
) -> None:
    await host.begin(7)
    assert host.sessions.parts == pytest.approx({7: SHARED})
    await host.begin(8)
    assert host.sessions.parts == pytest.approx({7: SHARED / 2, 8: SHARED / 2})
    await host.end(7)
    assert host.sessions.parts == pytest.approx({8: SHARED})
    assert host.pool.room == 4
    await host.begin(9, 10, 11, 12)
    assert set(host.sessions.parts.values()) == {2.0}
    assert host.sessions.most_together == 10.0
    assert host.pool.room == 0
    await host.pool.stop_all()
    await host.pool.settle()
    assert [entry.why_ended for entry in host.ended] == ["target-exited", *["stopped"] * 5]


async def test_what_was_spent_leaves_less_for_those_that_live(host: Host) -> None:
    await host.begin(7)
    for second in range(1, 9):
        host.clock.advance(1)
        host.sessions.cpu = {7: 0.5 * second}
        host.pool.meter()
        await host.pool.settle()
    assert 2.0 <= host.sessions.parts[7] < 10.0
    assert host.pool.room == 2  # for so many starts 2 s of the 6 s of a minute are enough


async def test_a_session_that_ends_is_noted_with_its_reason_and_what_it_took_counts(
    host: Host,
) -> None:
    await host.begin(7)
    host.sessions.cpu = {7: 5.5}
    await host.end(7)
    (entry,) = host.ended
    assert (entry.why_ended, entry.ended_ns) == ("target-exited", host.clock.at_ns)
    assert host.registry.entries() == [entry]
    assert host.said.events == ["recording", "ended"]
    host.clock.advance(1)
    host.pool.meter()
    assert host.pool.room == 0


async def test_a_job_that_cannot_be_recorded_is_logged_once_and_takes_no_room(host: Host) -> None:
    host.sessions.refusal = SessionFailed("ptrace_scope forbids it")
    await host.begin(7)
    await host.begin(7)
    assert host.said.events == ["refused"]
    assert host.pool.room == 5
    assert host.pool.live == {}


async def test_an_adopted_session_shares_the_budget_too(host: Host) -> None:
    entry = entry_of(7, run=50)
    host.sessions.adoptable = {entry.run_id}
    host.sessions.cpu = {7: 500.0}  # of long ago
    assert host.pool.adopt(entry)
    await host.begin(8)
    host.clock.advance(1)
    host.pool.meter()
    await host.pool.settle()
    assert host.sessions.parts == pytest.approx({7: SHARED / 2, 8: SHARED / 2})
    assert not host.pool.adopt(entry_of(9, run=51))


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_quiet_job_gives_its_place_to_one_that_waits(host: Host, is_waiting: bool) -> None:
    for pid in (7, 8) if is_waiting else (7,):
        host.table.add(pid, torch=True)
    host.pool.begin(host.jobs.poll(room=1))
    await host.pool.settle()
    for _ in range(8):
        host.clock.advance(60)
        host.jobs.poll(room=0)
    await host.pool.make_room()
    await host.pool.make_room()  # one at a time
    while is_waiting and not host.ended:
        await asyncio.sleep(0)
    await host.pool.settle()
    assert list(host.sessions.live) == ([] if is_waiting else [7])
    assert [entry.why_ended for entry in host.ended] == ["quiet"] * is_waiting
    assert host.said.events.count("released") == is_waiting
    host.clock.advance(60)
    host.pool.begin(host.jobs.poll(room=1))
    await host.pool.settle()
    assert list(host.sessions.live) == ([8] if is_waiting else [7])
