"""Native stacks of a process's waiting threads, without stopping them.

A thread that waits executes nothing, so its stack stands still. The kernel tells its stack
pointer and its program counter. The stack is copied by one system call. If the thread was not on a
CPU from before the copy until after it, by the kernel's count, the copy is of one moment.

Nothing of this stops, signals or writes to the process, or makes a page of it resident.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from profd.daemon import processes
from profd.daemon.interpreter.memory import Memory, Unreadable
from profd.daemon.native.images import CodeOf, Images
from profd.daemon.native.names import above_python
from profd.daemon.native.walk import StackCopy, Walk, Walker

_MOST_STACK_BYTES = 512 << 10
_TRIES, _PAUSE_S = 5, 0.002
_MUSL = "/ld-musl-"
RUNS = "it runs"


class NativeThread(msgspec.Struct, frozen=True):
    """The native frames of a thread above its Python ones, the innermost first.

    A frame is ``function (file)``. All frames are there if no Python runs in the thread. ``end`` is
    empty if these are all, else it says why the walk ended before. Without frames it says why none
    was read. ``os_thread_id`` is that in /proc, ``name`` the kernel's name for it.
    """

    os_thread_id: int
    name: str
    frames: tuple[str, ...] = ()
    end: str = ""
    has_python: bool = False


class NativeProcess(msgspec.Struct, frozen=True):
    """The threads of a process; ``error`` says why none was read."""

    pid: int
    threads: tuple[NativeThread, ...] = ()
    error: str = ""


class Still(NamedTuple):
    """What the kernel says of a thread that waits; equal only as long as it executes nothing.

    ``call`` is the system call with stack pointer and program counter, ``times`` the time that it
    was on a CPU and waited for one, and how often it was on one.
    """

    call: str
    times: str

    @property
    def counter(self) -> int:
        return int(self.call.split()[-1], 0)

    @property
    def pointer(self) -> int:
        return int(self.call.split()[-2], 0)


def still(pid: int, os_tid: int) -> Still | None:
    """Return the state of a thread; None if it runs, or if the kernel does not say."""
    folder = f"{processes.PROC}/{pid}/task/{os_tid}"
    call = processes.read_text(f"{folder}/syscall")
    times = processes.read_text(f"{folder}/schedstat")
    # A kernel that does not count says that it never ran.
    is_counted = times.split()[2:3] not in ([], ["0"])
    has_place = len(call.split()) > 2 and not call.endswith(" 0x0\n")
    return Still(call, times) if is_counted and has_place else None


class NativeStacks:
    """The native stacks of one process. Raises Unreadable if it cannot be read, or is not known."""

    def __init__(self, pid: int, images: Images) -> None:
        """Open a process; raises Unreadable."""
        _check_kind(pid)
        self._pid, self._memory = pid, Memory(pid)
        try:
            self.code = CodeOf(pid, self._memory, images)
        except (OSError, Unreadable) as error:
            self._memory.close()
            raise Unreadable(f"its memory map cannot be read ({error})") from error
        self._walker = Walker(self.code)

    def close(self) -> None:
        self.code.close()
        self._memory.close()

    def walk(self, os_tid: int, look: Callable[[int, int], Still | None] = still) -> Walk | None:
        """Return the stack of a thread; None if it runs. Raises Unreadable."""
        for number in range(_TRIES):
            if number:
                time.sleep(_PAUSE_S)
            before = look(self._pid, os_tid)
            if before is None:
                continue
            mapping = self.code.mapping(before.pointer)
            if mapping is None:
                raise Unreadable("its stack is not mapped")
            length = min(mapping.end - before.pointer, _MOST_STACK_BYTES)
            (data,) = self._memory.read_together((before.pointer, length))
            if look(self._pid, os_tid) == before:
                return self._walker.walk(StackCopy(before.pointer, data), before.counter)
        return None


def read_process(pid: int, images: Images) -> NativeProcess:
    """Return the native stacks of a process's threads."""
    try:
        with contextlib.closing(NativeStacks(pid, images)) as stacks:
            return NativeProcess(pid, tuple(_threads(pid, stacks)))
    except Unreadable as error:
        return NativeProcess(pid, error=str(error))


def _check_kind(pid: int) -> None:
    """Raise Unreadable, with the reason, if native stacks of such a process are not read."""
    if (machine := platform.machine()) != "x86_64":
        raise Unreadable(f"native stacks are read on x86-64 alone, and this is {machine}")
    if _MUSL in processes.maps(pid):
        raise Unreadable("it runs on musl, which does not say how its functions return")


def _threads(pid: int, stacks: NativeStacks) -> Iterator[NativeThread]:
    os_tids = sorted(processes.thread_ids(pid).values())
    walks = {os_tid: _walk_of(os_tid, stacks) for os_tid in os_tids}
    names = stacks.code.names({frame.within for walk in walks.values() for frame in walk.frames})
    for os_tid, walk in walks.items():
        comm = processes.read_text(f"{processes.PROC}/{pid}/task/{os_tid}/comm").rstrip("\n")
        frames, has_python = above_python([names[frame.within] for frame in walk.frames])
        end = "" if has_python else walk.end
        yield NativeThread(os_tid, comm, tuple(frames), end, has_python)


def _walk_of(os_tid: int, stacks: NativeStacks) -> Walk:
    """Return the stack of a thread; without frames it says why there are none."""
    try:
        return stacks.walk(os_tid) or Walk((), RUNS)
    except Unreadable as error:
        return Walk((), str(error))
