"""Native frames go to the Python frames that called them, or to none."""

from __future__ import annotations

from msgspec.structs import replace

from profd.daemon.native.joined import CUT, joined
from profd.daemon.native.stacks import RUNS, NativeProcess, NativeThread
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread

HERE = (DumpedFrame("get", "/usr/lib/python3.11/queue.py", 171),)
THERE = (DumpedFrame("put", "/usr/lib/python3.11/queue.py", 140),)
IN_LOCK = ("sem_wait (libc.so.6)", "acquire (python3.11)")


def thread(os_tid: int, frames: tuple[DumpedFrame, ...] = HERE) -> DumpedThread:
    return DumpedThread(os_tid, f"thread {os_tid}", active=False, owns_gil=False, frames=frames)


def read(os_tid: int, frames: tuple[str, ...] = IN_LOCK, end: str = "") -> NativeThread:
    return NativeThread(os_tid, f"native {os_tid}", frames, end, has_python=not end)


def join(
    before: list[DumpedThread], after: list[DumpedThread], *native: NativeThread
) -> tuple[DumpedThread, ...]:
    ids = {one: one for one in range(10)}
    return joined(before, after, NativeProcess(1, native), ids)


def test_native_frames_go_to_the_thread_that_stood_before_and_after() -> None:
    (found,) = join([thread(1)], [thread(1)], read(1))
    assert found == replace(thread(1), native=IN_LOCK)


def test_a_thread_that_went_on_has_no_native_frames() -> None:
    for after in ([thread(1, THERE)], []):
        (found,) = join([thread(1)], after, read(1))
        assert (found.native, found.note) == ((), "no native stack: it went on meanwhile")


def test_where_the_walk_ended_stands_a_sign_for_the_frames_that_are_not_known() -> None:
    (found,) = join([thread(1)], [thread(1)], read(1, end="rbp is not known"))
    assert found.native == (*IN_LOCK, CUT)


def test_a_thread_that_runs_is_said_to_run() -> None:
    (found,) = join([thread(1)], [thread(1)], read(1, (), RUNS))
    assert (found.native, found.note) == ((), "no native stack: it runs")


def test_threads_without_python_come_last_by_the_name_that_the_kernel_has() -> None:
    found = join([thread(2)], [thread(2)], read(1), read(2))
    assert [(one.thread_name, one.frames) for one in found] == [
        ("thread 2", HERE),
        ("native 1", ()),
    ]
    assert all(one.native == IN_LOCK for one in found)


def test_threads_of_a_container_are_matched_by_their_ids_here() -> None:
    native = NativeProcess(1, (read(4711), read(4712)))
    found = joined([thread(1)], [thread(1)], native, {1: 4711, 2: 4712})
    assert [(one.os_thread_id, one.native) for one in found] == [(1, IN_LOCK), (2, IN_LOCK)]


def test_a_process_that_was_not_read_keeps_what_py_spy_said() -> None:
    assert join([thread(1)], [thread(1)]) == (thread(1),)
