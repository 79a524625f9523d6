"""Native frames of a look: at the threads that still stand where it saw them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.synthetic import identity_of

from profd.daemon.hangs import nativelook
from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.nativelook import with_native_frames
from profd.daemon.hangs.waits import Wait
from profd.daemon.native import joined
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread, DumpFailed
from profd.daemon.store.records import Frame
from profd.daemon.tree.tree import Member

MEMBER = Member(identity_of(), None, ("python", "train.py"), "main", 3, None, "3.11", 1)
PID = MEMBER.identity.pid
STACK = (Frame("<module>", "/srv/train.py", 40), Frame("get", "/lib/queue.py", 171))
SAME = tuple(DumpedFrame(one.function, one.file, one.line) for one in reversed(STACK))
LOCK = Wait("lock", "a lock")
LOOK = Look(
    0,
    (
        StackState(MEMBER, "MainThread", True, STACK, LOCK, os_tid=PID),
        StackState(MEMBER, "saver", False, STACK, LOCK, os_tid=71),
    ),
)


def thread(
    os_tid: int, frames: tuple[DumpedFrame, ...], *native: str, name: str = "T"
) -> DumpedThread:
    return DumpedThread(os_tid, name, False, False, frames, native=native)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[DumpedThread]:
    """Give the list of threads with native frames that are found now."""
    now: list[DumpedThread] = []
    monkeypatch.setattr(nativelook, "take_dump", lambda pid, tries: ())
    monkeypatch.setattr(nativelook, "read_wait", lambda *_: Wait("lock", "another lock"))
    monkeypatch.setattr(
        joined, "with_native", lambda dumps: {pid: (tuple(now), "it is old") for pid in dumps}
    )
    return now


def test_a_thread_gets_native_frames_if_it_stands_in_the_stack_of_the_look(
    found: list[DumpedThread],
) -> None:
    found += [thread(PID, SAME, "futex (libc.so.6)"), thread(71, SAME[1:], "read (libc.so.6)")]
    look, whys = with_native_frames(LOOK)
    assert [row.native for row in look.standing] == [("futex (libc.so.6)",), ()]
    assert whys == ["rank 3: it is old"]


def test_threads_without_python_are_added_and_come_last(found: list[DumpedThread]) -> None:
    found += [
        *(thread(80 + one, (), "wait (libgomp.so)", name="omp") for one in range(5)),
        thread(PID, SAME, "futex (libc.so.6)"),
        thread(90, ()),
    ]
    look, _ = with_native_frames(LOOK)
    groups = look.groups()
    assert [(len(one.stands), one.frames, one.native) for one in groups] == [
        (1, STACK, ("futex (libc.so.6)",)),
        (1, STACK, ()),
        (5, (), ("wait (libgomp.so)",)),
    ]
    assert groups[-1].stands[0].wait == "another lock"
    assert look.mains() == [replace_native(LOOK.standing[0])]


def test_a_wait_says_its_native_operation_and_the_thread_that_it_is_for(
    found: list[DumpedThread],
) -> None:
    omp = "? (libgomp.so.1)"
    found += [
        thread(PID, SAME, omp, omp),
        thread(71, SAME, "poll (libc.so.6)", "getaddrinfo (libc.so.6)"),
        thread(80, (), "read (libc.so.6)", "f (libn.so)", omp, name="omp"),
        thread(81, (), omp, name="omp"),
    ]
    look, _ = with_native_frames(LOOK)
    team = "in a wait of OpenMP's threads"
    assert [row.wait.text for row in look.standing] == [
        f"a lock, {team}; its thread omp (80) is in f (libn.so): another lock",
        "a lock, in the look-up of a host's name",
        "another lock",
        f"another lock, {team}",
    ]
    assert [row.wait.peers for row in look.standing] == [(80,), None, None, None]


def test_versions_that_are_known_to_hang_are_a_fact_once(
    found: list[DumpedThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nativelook, "versions_of", lambda _: {"NCCL": "2.29.2"})
    found += [thread(PID, SAME, "ncclCommAbort (libnccl.so.2)")]
    _, facts = with_native_frames(LOOK)
    assert [fact.partition(" is ")[0] for fact in facts] == ["rank 3: it", "NCCL 2.29.2"]


def replace_native(row: StackState) -> StackState:
    return row._replace(native=("futex (libc.so.6)",))


def test_a_process_that_py_spy_cannot_read_keeps_what_the_look_saw(
    found: list[DumpedThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int, tries: int) -> tuple[DumpedThread, ...]:
        raise DumpFailed("it moved")

    monkeypatch.setattr(nativelook, "take_dump", fail)
    assert with_native_frames(LOOK) == (replace(LOOK, standing=LOOK.standing), [])
