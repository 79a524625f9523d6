"""Who holds the lock of running Pythons, of each version that is here, and who waits for it."""

from __future__ import annotations

import pytest
from support.interpreters import READY, VERSIONS, python, standing
from support.waiting import until

from profd.daemon import processes
from profd.daemon.interpreter.frames import open_interpreter
from profd.daemon.interpreter.lock import OFTEN_S, SELDOM_S, Lock, LockSeen
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.store.records import HAND_OVERS, LOCK_HELD, LOCK_WAIT, Identity, Point
from profd.daemon.systemcalls import system_call

# PyDLL keeps the lock during a call: once the main thread is at its input, the other thread stands
# in the kernel with the lock, and the main one waits for that as soon as it has its line.
HOLDS = f"""
import ctypes, os, threading
{READY}
ours, theirs = os.pipe()
def hold():
    ctypes.PyDLL(None).read(ours, ctypes.create_string_buffer(1), 1)
threading.Timer(0.05, hold).start()
ready()
"""


def opened(pid: int) -> Lock:
    return Lock(open_interpreter(pid), Identity(pid, 1), lambda: pid)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_thread_that_waits_for_the_lock_is_seen_and_so_is_the_one_that_holds_it(
    version: str,
) -> None:
    with standing(HOLDS, python(version)) as program:
        found = opened(program.pid)
        until(lambda: found.look().holder, "the other thread to take it")
        assert not found.look().is_awaited
        program.leave()
        until(lambda: found.look().is_awaited, "the main thread to wait for the lock")
        assert found.look().holder in set(processes.thread_ids(program.pid)) - {program.pid}


def test_one_thread_that_waits_for_input_waits_for_no_lock() -> None:
    with standing(f"{READY}\nready()") as program:
        found = opened(program.pid)
        assert found.look()[:2] == (False, None)


def test_a_wait_for_a_lock_of_the_program_is_none_for_that_of_its_interpreter() -> None:
    waits = f"{READY}\nimport threading\nready()\nthreading.Event().wait()"
    with standing(waits) as program:
        found = opened(program.pid)
        program.leave()
        until(
            lambda: (system_call(program.pid, program.pid) or ("",))[0] == "futex",
            "the main thread to wait",
        )
        assert not found.look().is_awaited


def test_what_is_no_lock_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.daemon.interpreter.lock._LONGEST_TURN_US", 1)
    with standing(f"{READY}\nready()") as program, pytest.raises(Unreadable, match="is not where"):
        opened(program.pid)


def test_a_kernel_that_says_no_system_calls_gives_no_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("profd.daemon.systemcalls.NAMES", {})
    with (
        standing(f"{READY}\nready()") as program,
        pytest.raises(Unreadable, match="does not say at what its threads wait"),
    ):
        opened(program.pid)


def test_looks_become_shares_and_are_seldom_while_one_thread_has_the_lock() -> None:
    with standing(f"{READY}\nready()") as program:
        found = opened(program.pid)
    before = found._changes
    points = found.points([LockSeen(True, 7, before + 9), LockSeen(False, None, before + 18)], 2.0)
    paces = [found.read_s]
    points += found.points([LockSeen(False, 8, before + 18), LockSeen(False, 8, before + 18)], 2.0)
    paces.append(found.read_s)
    identity = Identity(program.pid, 1)
    assert points == (
        Point(LOCK_WAIT, 0.5, identity),
        Point(HAND_OVERS, 4.5, identity),
        Point(LOCK_HELD, 0.5, identity, 7),
        Point(LOCK_WAIT, 0.0, identity),
        Point(HAND_OVERS, 0.0, identity),
        *(Point(LOCK_HELD, {7: 0.0, 8: 1.0}[os_tid], identity, os_tid) for os_tid in found._held),
    )
    assert paces == [OFTEN_S, SELDOM_S]
