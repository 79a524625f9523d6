"""When the copy of a stack counts, and which processes and threads are not read at all."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import pytest
from support.interpreters import standing
from support.present import there
from support.waiting import until

from profd.daemon import processes
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.native import stacks
from profd.daemon.native.images import Images
from profd.daemon.native.stacks import NativeStacks, Still, read_process, still
from profd.daemon.systemcalls import system_call

US = os.getpid()
pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="native stacks: x86-64 alone"
)


@pytest.fixture
def waiting() -> Iterator[int]:
    """Give the id of a thread of this process that waits for a lock."""
    ready, leave = threading.Event(), threading.Lock()
    leave.acquire()

    def wait() -> None:
        ready.set()
        leave.acquire()

    thread = threading.Thread(target=wait)
    thread.start()
    os_tid = there(thread.native_id)
    until(lambda: (system_call(US, os_tid) or ("",))[0] == "futex", "the thread to wait")
    yield os_tid
    leave.release()
    thread.join()


@pytest.fixture
def opened() -> Iterator[NativeStacks]:
    with contextlib.closing(NativeStacks(US, Images())) as found:
        yield found


def test_a_thread_that_waits_is_walked_to_where_it_began(
    waiting: int, opened: NativeStacks
) -> None:
    walk = there(opened.walk(waiting))
    assert walk.end == ""
    assert len(walk.frames) > 5


@pytest.mark.parametrize("changed", ["times", "call"])
def test_a_copy_does_not_count_if_the_thread_ran_meanwhile(
    waiting: int, opened: NativeStacks, changed: str
) -> None:
    seen = there(still(US, waiting))
    looks = 0

    def look(pid: int, os_tid: int) -> Still | None:
        nonlocal looks
        looks += 1
        return seen._replace(**{changed: f"{looks} {getattr(seen, changed)}"})

    assert opened.walk(waiting, look) is None
    assert looks == 2 * stacks._TRIES


def test_a_thread_that_stands_still_at_last_is_read(waiting: int, opened: NativeStacks) -> None:
    seen = there(still(US, waiting))
    looks = iter([None, seen, seen._replace(times="1 2 3"), seen, seen])
    assert opened.walk(waiting, lambda *_: next(looks)) == opened.walk(waiting)


@pytest.mark.parametrize(
    ("call", "times"),
    [
        ("running\n", "5 6 7\n"),
        ("202 0x1 0x0 0x0 0x0 0x0 0x0 0x7ffe0000 0x7f0000\n", "0 0 0\n"),
        ("202 0x1 0x0 0x0 0x0 0x0 0x0 0x7ffe0000 0x7f0000\n", ""),
        ("0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", "5 6 7\n"),
        ("", "5 6 7\n"),
    ],
)
def test_a_thread_of_which_the_kernel_does_not_say_that_it_waits_is_not_read(
    monkeypatch: pytest.MonkeyPatch, call: str, times: str
) -> None:
    texts = {"syscall": call, "schedstat": times}
    monkeypatch.setattr(processes, "read_text", lambda path: texts[path.rpartition("/")[2]])
    assert still(1, 1) is None


def test_place_and_counter_are_the_last_words() -> None:
    for call in ("202 0x1 0x0 0x0 0x0 0x0 0x0 0x7ffe0000 0x7f0010\n", "-1 0x7ffe0000 0x7f0010\n"):
        seen = Still(call, "5 6 7\n")
        assert (seen.pointer, seen.counter) == (0x7FFE0000, 0x7F0010)


def test_a_running_thread_is_said_to_run() -> None:
    with standing("\nready()\nwhile True: pass") as program:
        program.leave()
        until(lambda: still(program.pid, program.pid) is None, "it to run")
        (found,) = read_process(program.pid, Images()).threads
    assert (found.frames, found.end) == ((), stacks.RUNS)


def test_other_machines_and_musl_are_said_not_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "on x86-64 alone, and this is aarch64" in read_process(US, Images()).error
    monkeypatch.undo()
    monkeypatch.setattr(processes, "maps", lambda pid: "1-2 r-xp 0 8:1 1 /lib/ld-musl-x86_64.so.1")
    assert "it runs on musl" in read_process(US, Images()).error
    monkeypatch.undo()
    with pytest.raises(Unreadable):
        NativeStacks(2**22 + 1, Images())
