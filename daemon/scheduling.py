"""When and where the kernel runs profd's own processes.

They run after others, and on other cores than what is sampled.
"""

from __future__ import annotations

import contextlib
import os
import struct

from profd.daemon import processes
from profd.daemon.processes import PROC

NICENESS = 5
"""A third of the usual weight.

With less, samples on crowded cores come when the target waits, not when they are due.
"""
LONG_SLICE_NS = 100_000_000
"""The longest slice that the kernel accepts."""
ENOUGH_IDLE = 0.2
"""A share of one core, over all other cores together: four times what py-spy takes."""
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")
"""``struct sched_attr``: size, policy, flags, niceness, priority, slice in ns, deadline, period."""


def give_way(pid: int) -> None:
    """Make a process just started wait if a program of usual priority wants its core.

    It also gets a long slice: a program that wakes then takes the core from it at once. Before
    Linux 6.12 the slice has no effect.
    """
    with contextlib.suppress(OSError):  # the process has ended
        niceness = max(os.getpriority(os.PRIO_PROCESS, pid), NICENESS)
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        number = _SCHED_SETATTR.get(os.uname().machine)
        if number is not None and os.sched_getscheduler(pid) == os.SCHED_OTHER:
            import ctypes

            words = (_SCHED_ATTR.size, os.SCHED_OTHER, 0, niceness, 0, LONG_SLICE_NS, 0, 0)
            ctypes.CDLL(None).syscall(number, pid, _SCHED_ATTR.pack(*words), 0)


def give_way_as_session() -> None:
    """Make this whole session wait as ``give_way`` makes a process wait.

    If the kernel groups sessions, it compares groups, not processes. This does nothing unless this
    process leads its session: the group would be that of whoever started it.
    """
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):  # the kernel does not group sessions
            (PROC / "self/autogroup").write_text(str(NICENESS))


def keep_to(pid: int, cores: frozenset[int]) -> None:
    """Make all threads of a process run on these cores only; the process may be gone."""
    with contextlib.suppress(OSError):
        for os_tid in os.listdir(f"{PROC}/{pid}/task"):
            os.sched_setaffinity(int(os_tid), cores)


class FreeCores:
    """The cores on which this process may run, and the idle share of each in the last second.

    If all other cores are busy, only the core of the sampled process is ever free, namely while
    that process waits. The kernel wakes py-spy there, and py-spy then waits while the target works,
    until the target waits once more. So the profile would show too much waiting.
    """

    def __init__(self) -> None:
        self._allowed = frozenset(os.sched_getaffinity(0))
        self._idle: dict[int, float] = {}
        self._before = processes.cpu_ticks()

    def look(self) -> None:
        """Update the idle shares; to be called each second."""
        before, self._before = self._before, processes.cpu_ticks()
        for core in self._allowed:
            was, now = before.get(f"cpu{core}"), self._before.get(f"cpu{core}")
            if was and now and now.all > was.all:
                self._idle[core] = 1 - (now.busy - was.busy) / (now.all - was.all)

    def beside(self, core: int) -> frozenset[int]:
        """Return the cores for py-spy while the process that it samples runs on ``core``."""
        others = self._allowed - {core}
        has_room = sum(self._idle.get(other, 1.0) for other in others) >= ENOUGH_IDLE
        return self._allowed if has_room or not others else others
