"""What a look at a run reads, and what it costs."""

from __future__ import annotations

import os

import msgspec
import pytest
from support.present import there
from support.synthetic import identity_of

from profd.daemon import processes
from profd.daemon.hangs import look
from profd.daemon.hangs.waits import Wait
from profd.daemon.native.gil import GilWait
from profd.daemon.stacks.dump import DumpedThread
from profd.daemon.stacks.pyspy import read_cost_s
from profd.daemon.store.records import ThreadId
from profd.daemon.tree.tree import Member

TRAINS = Member(identity_of(), None, ("python", "train.py"), "main", None, None, "3.11", 1)


@pytest.mark.parametrize("mains_only", [True, False])
def test_a_look_at_main_threads_reads_what_no_other_waits_for(
    monkeypatch: pytest.MonkeyPatch, mains_only: bool
) -> None:
    read: list[int] = []
    names = {os.getpid(): "MainThread", 71: "Thread-1", 72: "Thread-2"}
    threads = tuple(DumpedThread(tid, name, False, False, (), tid) for tid, name in names.items())
    monkeypatch.setattr(look, "take_dump", lambda pid, tries: threads)

    def read_wait(pid: int, os_tid: int, name_of: object) -> Wait:
        read.append(os_tid)
        return Wait("lock", "a lock")

    monkeypatch.setattr(look, "read_wait", read_wait)
    seen = look.take_look([TRAINS], 0, mains_only=mains_only)
    assert read == [row_tid for row_tid in names if row_tid == os.getpid() or not mains_only]
    assert len(seen.standing) == len(read)


@pytest.mark.parametrize(("ident", "leads"), [(7100, "trainer"), (9999, "MainThread")])
def test_the_thread_that_trains_stands_for_its_process_as_long_as_it_lives(
    monkeypatch: pytest.MonkeyPatch, ident: int, leads: str
) -> None:
    threads = (
        DumpedThread(os.getpid(), "MainThread", False, False, (), 1),
        DumpedThread(71, "trainer", False, False, (), 7100),
    )
    monkeypatch.setattr(look, "take_dump", lambda pid, tries: threads)
    monkeypatch.setattr(look, "read_wait", lambda *_: Wait("lock", "a lock"))
    member = msgspec.structs.replace(TRAINS, leader=ThreadId(71, ident))
    seen = look.take_look([member], 0, mains_only=False)
    assert [row.thread for row in seen.mains()] == [leads]
    assert [len(one.stands) for one in seen.groups() if one.stands[0].is_main] == [1]


def test_a_look_costs_what_the_threads_of_the_pythons_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    of_many = msgspec.structs.replace(there(processes.read_stat(os.getpid())), threads=2_000)
    monkeypatch.setattr(processes, "read_stat", lambda pid: of_many)
    shell = Member(identity_of(), None, ("sh",), "helper", None, None, None, 1)
    assert look.cost_s([TRAINS, shell], mains_only=True) == pytest.approx(read_cost_s(2_000))
    assert look.cost_s([TRAINS, shell], mains_only=False) == pytest.approx(2 * read_cost_s(2_000))


def test_a_thread_that_waits_for_the_gil_says_who_holds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    us, text = os.getpid(), "waits for the GIL, which thread decoder holds in f (a.py:1)"
    threads = tuple(DumpedThread(tid, f"T{tid}", False, False, (), tid) for tid in (us, 71))
    monkeypatch.setattr(look, "take_dump", lambda pid, tries: threads)
    monkeypatch.setattr(look, "read_wait", lambda *_: Wait("lock", "a lock"))
    monkeypatch.setattr(look, "waits_for_gil", lambda pid, threads: {us: GilWait(text, (71,))})
    seen = look.take_look([TRAINS], 0, mains_only=False)
    stands = [stand for group in seen.groups() for stand in group.stands]
    assert [(one.os_tid, one.awaits) for one in stands] == [(us, (71,)), (71, ())]
    assert [row.wait for row in seen.standing] == [
        Wait("gil", text, peers=(71,)),
        Wait("lock", "a lock"),
    ]
