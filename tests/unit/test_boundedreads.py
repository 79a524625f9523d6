"""Reads that may never end: one that does not is given up, and one user's take no time from
another's.
"""

from __future__ import annotations

import threading

import pytest
from support.waiting import until

from profd.daemon import processes
from profd.daemon.boundedreads import MOST_STUCK, BoundedReads, Unread


class Hanging:
    """A read that does not end before the test says so."""

    def __init__(self) -> None:
        self.wakes, self.asked = threading.Event(), 0

    def __call__(self, pid: int) -> str:
        self.asked += 1
        self.wakes.wait()
        return "late"


@pytest.fixture(autouse=True)
def owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each user the processes of a hundred."""
    monkeypatch.setattr(processes, "owner_uid", lambda pid: pid // 100)


def is_unread(reads: BoundedReads, pid: int, ask: Hanging) -> bool:
    try:
        reads.read(pid, ask)
    except Unread:
        return True
    return False


def test_what_is_read_is_returned_or_raised_here_by_one_thread() -> None:
    def fail(pid: int) -> str:
        raise PermissionError("not yours")

    reads = BoundedReads()
    assert reads.read(107, lambda pid: f"maps of {pid}") == "maps of 107"
    with pytest.raises(PermissionError, match="not yours"):
        reads.read(107, fail)
    assert len({reads.read(pid, lambda _: threading.get_ident()) for pid in range(20)}) == 1


def test_a_read_that_does_not_end_is_given_up_and_not_made_again_before_it_does() -> None:
    reads, hanging = BoundedReads(deadline_s=0.05, user_s=60.0), Hanging()
    assert all(is_unread(reads, 107, hanging) for _ in range(5))
    assert until(lambda: hanging.asked, "the read to begin") == 1
    reads._deadline_s = 60.0
    assert reads.read(108, lambda _: "other") == "other"  # nobody else waits for it
    hanging.wakes.set()
    until(lambda: not reads._stuck[107][1].is_alive(), "the thread to end")
    assert reads.read(107, lambda _: "again") == "again"


def test_a_users_processes_share_their_time_and_others_have_theirs() -> None:
    now_s = 0.0

    def dear(pid: int) -> str:
        nonlocal now_s
        now_s += 0.4
        return "read"

    reads = BoundedReads(user_s=1.0, all_s=2.0, cpu_s=lambda: now_s)
    assert [reads.read(pid, dear) for pid in (101, 102, 103)] == ["read"] * 3
    with pytest.raises(Unread):
        reads.read(104, dear)
    assert reads.read(205, dear) == "read"
    assert reads.read(306, dear) == "read"
    with pytest.raises(Unread):
        reads.read(407, dear)  # the time of all is up
    reads.begin_turn()
    assert reads.read(104, dear) == "read"


def test_a_read_that_is_given_up_takes_its_time_from_its_user() -> None:
    reads, hanging = BoundedReads(deadline_s=0.01, user_s=0.02), Hanging()
    assert all(is_unread(reads, 100 + number, hanging) for number in range(5))
    assert len(reads._stuck) == 2
    hanging.wakes.set()


def test_a_user_holds_few_threads_whatever_its_processes_do() -> None:
    reads, hanging, before = (
        BoundedReads(deadline_s=0.01, user_s=60.0),
        Hanging(),
        threading.active_count(),
    )
    assert all(is_unread(reads, 100 + number, hanging) for number in range(50))
    assert threading.active_count() - before <= MOST_STUCK
    reads._deadline_s = 60.0
    assert reads.read(290, lambda _: "other") == "other"
    hanging.wakes.set()
    until(
        lambda: not any(reader.is_alive() for _, reader in reads._stuck.values()),
        "the threads to end",
    )
    reads.begin_turn()
    assert reads.read(150, lambda _: "again") == "again"
