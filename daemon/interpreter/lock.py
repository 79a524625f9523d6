"""The interpreter's lock (GIL): who holds it, and whether the leading thread waits for it.

A thread that wants the lock sleeps in the kernel at one of the lock's own addresses until it gets
it, and asks for it every 5 ms. The system call that a thread is in has that address. Linux with
glibc only: musl has the address on the thread's stack.
"""

from __future__ import annotations

import contextlib
import platform
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from profd.daemon import processes, systemcalls
from profd.daemon.interpreter.frames import Interpreter, open_interpreter
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.store.records import HAND_OVERS, LOCK_HELD, LOCK_WAIT, Identity, Point

# The begin of struct _gil_runtime_state (internal/pycore_gil.h), the same from 3.8 to 3.15: the
# microseconds of a turn, who holds it or held it last, whether it is held, and how often it went
# to another thread. What threads wait at follows, up to 208 bytes.
_STATE, _BYTES = struct.Struct("<2Qi4xQ"), 208
_LONGEST_TURN_US = 10_000_000
# Up to 3.10 only the C library knows the id of a thread for the kernel: in its struct pthread.
_ID_OF_PTHREAD = {"x86_64": 720, "aarch64": 208}.get(platform.machine(), 0)
OFTEN_S, SELDOM_S = 0.1, 0.5
"""Between two looks while the lock goes from thread to thread, and while one thread has it."""


class LockSeen(NamedTuple):
    """Whether the leading thread waits for the lock, who holds it, and how often it has changed.

    ``holder`` is the id in /proc of another thread; None if no other is known to hold it.
    """

    is_awaited: bool
    holder: int | None
    changes: int


class LockState(NamedTuple):
    """Whether the lock is held, by whom, and who waits for it, by their ids in /proc.

    ``holder`` is None if no living thread holds it.
    """

    is_held: bool
    holder: int | None
    waiting: frozenset[int]


class Lock:
    """The lock of an interpreter; ``leader`` returns the id of the leading thread, as /proc has it.

    Everything raises Unreadable.
    """

    read_s = OFTEN_S

    def __init__(self, python: Interpreter, identity: Identity, leader: Callable[[], int]) -> None:
        """Find it; raises Unreadable if it is not as in the known versions."""
        self._python, self._at, self._identity = python, python.lock(), identity
        self._leader, self._threads, self._held = leader, dict[int, int](), set[int]()
        turn_us, _, is_held, self._changes = self._state()
        if not 0 < turn_us < _LONGEST_TURN_US or is_held not in (0, 1):
            raise Unreadable("its lock is not where that of its version is")
        if not systemcalls.NAMES or not processes.read(f"{processes.PROC}/{identity.pid}/syscall"):
            raise Unreadable("the kernel does not say at what its threads wait")

    def look(self) -> LockSeen:
        is_awaited = self.is_awaited_by(self._leader())
        _, thread, is_held, changes = self._state()
        holder = self._id_of(thread) if is_held and thread else None
        return LockSeen(is_awaited, None if holder == self._leader() else holder, changes)

    def is_awaited_by(self, os_tid: int) -> bool:
        call, at, _ = systemcalls.system_call(self._identity.pid, os_tid) or ("", 0, 0)
        return call == "futex" and 0 <= at - self._at < _BYTES

    def state(self) -> LockState:
        """Return who holds the lock now, and who waits for it."""
        os_tids = processes.thread_ids(self._identity.pid).values()
        waiting = frozenset(filter(self.is_awaited_by, os_tids))
        _, thread, is_held, _ = self._state()
        return LockState(
            bool(is_held), self._id_of(thread) if is_held and thread else None, waiting
        )

    def points(self, looks: Sequence[LockSeen], seconds: float) -> tuple[Point, ...]:
        held = Counter(one.holder for one in looks if one.holder is not None)
        hand_overs = (looks[-1].changes - self._changes) / 2
        self._held, self._changes = self._held | held.keys(), looks[-1].changes
        self.read_s = OFTEN_S if hand_overs else SELDOM_S
        share = sum(one.is_awaited for one in looks) / len(looks)
        return (
            Point(LOCK_WAIT, share, self._identity),
            Point(HAND_OVERS, hand_overs / seconds, self._identity),
            *(Point(LOCK_HELD, held[one] / len(looks), self._identity, one) for one in self._held),
        )

    def _state(self) -> tuple[int, ...]:
        return _STATE.unpack(self._python.memory.read(self._at, _STATE.size))

    def _id_of(self, thread: int) -> int | None:
        """Return the id in /proc of a thread by the address of its state; None if unknown."""
        memory, ident = self._python.memory, thread + self._python.offsets.ident
        # From 3.11 on it is behind the id that Python gives it.
        known = self._python.version >= (3, 11)
        at = ident + 8 if known else memory.word(ident) + _ID_OF_PTHREAD
        inner = int.from_bytes(memory.read(at, 4), "little")
        if inner not in self._threads:
            self._threads = processes.thread_ids(self._identity.pid)
        return self._threads.get(inner)


def lock_state(pid: int) -> LockState | None:
    """Return who holds the lock of a process's Python; None if that cannot be read."""
    with contextlib.suppress(Unreadable):
        python = open_interpreter(pid)
        with contextlib.closing(python.memory):
            return Lock(python, Identity(pid, processes.start_ticks(pid)), lambda: pid).state()
    return None
