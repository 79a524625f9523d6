"""Who waits for Python's lock, and who holds it: in words."""

from __future__ import annotations

import pytest

from profd.daemon import processes
from profd.daemon.interpreter.lock import LockState, lock_state
from profd.daemon.native import gil
from profd.daemon.native.gil import GilWait, waits_for_gil
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread

FRAMES = (DumpedFrame("decode", "/srv/data/decode.py", 81),)
THREADS = (
    DumpedThread(1, "MainThread", active=False, owns_gil=False, frames=FRAMES),
    DumpedThread(2, "decoder", active=False, owns_gil=True, frames=FRAMES),
    DumpedThread(3, "native", active=False, owns_gil=True, frames=()),
)


def test_who_asks_for_the_lock_in_that_moment_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks every 5 ms."""
    states = [LockState(True, 12, frozenset()), LockState(True, 12, frozenset({11}))]
    monkeypatch.setattr(gil, "lock_state", lambda pid: states.pop(0))
    monkeypatch.setattr(processes, "thread_ids", lambda pid: {1: 11, 2: 12})
    assert list(waits_for_gil(7, THREADS)) == [1]


@pytest.mark.parametrize(
    ("state", "said", "holders"),
    [
        (LockState(True, 12, frozenset({11})), "which thread decoder holds in decode (data/decode.py:81)", (2,)),
        (LockState(True, 13, frozenset({11})), "which thread 13 holds", ()),
        (LockState(True, None, frozenset({11})), "which is held by a thread that is gone", ()),
        (LockState(False, None, frozenset({11})), "which nobody holds", ()),
    ],
)  # fmt: skip
def test_a_wait_for_the_lock_names_its_holder(
    monkeypatch: pytest.MonkeyPatch, state: LockState, said: str, holders: tuple[int, ...]
) -> None:
    monkeypatch.setattr(gil, "lock_state", lambda pid: state)
    monkeypatch.setattr(processes, "thread_ids", lambda pid: {1: 11, 2: 12, 3: 13})
    assert waits_for_gil(7, THREADS) == {1: GilWait(f"waits for the GIL, {said}", holders)}


@pytest.mark.parametrize("state", [None, LockState(True, 12, frozenset())])
def test_where_nobody_waits_or_nothing_is_read_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, state: LockState | None
) -> None:
    monkeypatch.setattr(gil, "lock_state", lambda pid: state)
    assert waits_for_gil(7, THREADS) == {}


def test_a_process_without_a_python_has_no_lock() -> None:
    assert lock_state(2**22 + 1) is None
