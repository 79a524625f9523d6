"""Reads that may never end: one that does not is given up, and one user's take no time from
another's.
"""

from __future__ import annotations

import threading

import pytest
from support.waiting import until

from profd.daemon.boundedreads import MOST_STUCK, BoundedReads, Unread


class Hanging:
    """A read that does not end before the test says so."""

    def __init__(self) -> None:
        self.wakes, self.asked = threading.Event(), 0

    def __call__(self) -> str:
        self.asked += 1
        self.wakes.wait()
        return "late"


def is_unread(reads: BoundedReads, pid: int, uid: int, ask: Hanging) -> bool:
    try:
        reads.read(pid, uid, ask)
    except Unread:
        return True
    return False


def test_what_is_read_is_returned_or_raised_here_by_one_thread() -> None:
    def fail() -> str:
        raise PermissionError("not yours")

    reads = BoundedReads()
    assert reads.read(7, 1, lambda: "maps") == "maps"
    with pytest.raises(PermissionError, match="not yours"):
        reads.read(7, 1, fail)
    assert len({reads.read(pid, 1, threading.get_ident) for pid in range(20)}) == 1


def test_a_read_that_does_not_end_is_given_up_and_not_made_again_before_it_does() -> None:
    reads, hanging = BoundedReads(deadline_s=0.05, user_s=60.0), Hanging()
    assert all(is_unread(reads, 7, 1, hanging) for _ in range(5))
    assert until(lambda: hanging.asked, "the read to begin") == 1
    reads._deadline_s = 60.0
    assert reads.read(8, 1, lambda: "other") == "other"  # nobody else waits for it
    hanging.wakes.set()
    until(lambda: not reads._stuck[7][1].is_alive(), "the thread to end")
    assert reads.read(7, 1, lambda: "again") == "again"


def test_a_users_processes_share_their_time_and_others_have_theirs() -> None:
    now_s = 0.0

    def dear() -> str:
        nonlocal now_s
        now_s += 0.4
        return "read"

    reads = BoundedReads(user_s=1.0, all_s=2.0, cpu_s=lambda: now_s)
    assert [reads.read(pid, 1, dear) for pid in (1, 2, 3)] == ["read"] * 3
    with pytest.raises(Unread):
        reads.read(4, 1, dear)
    assert reads.read(5, 2, dear) == "read"
    assert reads.read(6, 3, dear) == "read"
    with pytest.raises(Unread):
        reads.read(7, 4, dear)  # the time of all is up
    reads.begin_turn()
    assert reads.read(4, 1, dear) == "read"


def test_a_read_that_is_given_up_takes_its_time_from_its_user() -> None:
    reads, hanging = BoundedReads(deadline_s=0.01, user_s=0.02), Hanging()
    assert all(is_unread(reads, pid, 1, hanging) for pid in range(5))
    assert len(reads._stuck) == 2
    hanging.wakes.set()


def test_a_user_holds_few_threads_whatever_its_processes_do() -> None:
    reads, hanging, before = (
        BoundedReads(deadline_s=0.01, user_s=60.0),
        Hanging(),
        threading.active_count(),
    )
    assert all(is_unread(reads, pid, 1, hanging) for pid in range(50))
    assert threading.active_count() - before <= MOST_STUCK
    reads._deadline_s = 60.0
    assert reads.read(90, 2, lambda: "other") == "other"
    hanging.wakes.set()
    until(
        lambda: not any(reader.is_alive() for _, reader in reads._stuck.values()),
        "the threads to end",
    )
    reads.begin_turn()
    assert reads.read(50, 1, lambda: "again") == "again"
