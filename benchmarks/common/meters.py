"""What processes have taken up to now, as the kernel counts it: CPU, memory, descriptors.

Reads /proc from outside and asks profd nothing, so what profd says of its own cost can be held
against it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from profd.daemon import processes


class Mark(NamedTuple):
    """A reading of a meter that only grows: ``cpu_s`` CPU seconds up to ``at_s`` seconds after the
    start.
    """

    at_s: float
    cpu_s: float


class Memory(NamedTuple):
    """Memory of one or more processes.

    ``rss_bytes`` counts a page in each process that has it, ``pss_bytes`` shares it out between
    those that have it, and ``uss_bytes`` counts only what one process alone has.
    """

    rss_bytes: int
    pss_bytes: int
    uss_bytes: int


def own_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process without its children; 0 where it is gone."""
    stat = processes.read_stat(pid)
    return stat.cpu_s if stat else 0.0


def cpu_with_children_s(pid: int) -> float:
    """Return the CPU seconds of a process, of its children that have ended, and of those that live."""
    while True:
        reaped_s = _reaped_cpu_s(pid)
        sum_s = own_cpu_s(pid) + reaped_s + sum(map(own_cpu_s, processes.children(pid)))
        # A child that was reaped meanwhile would count twice, or not at all.
        if _reaped_cpu_s(pid) == reaped_s:
            return sum_s


def _reaped_cpu_s(pid: int) -> float:
    """Return the CPU seconds of the children that a process has waited for; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[13]) + int(fields[14])) / processes.CLOCK_TICKS


def cores_between(marks: Sequence[Mark], from_s: float, to_s: float) -> float:
    """Return the cores taken between the first mark at or after ``from_s`` and the last at or
    before ``to_s``.

    Raises ValueError where there are no two such marks.
    """
    within = [mark for mark in marks if from_s <= mark.at_s <= to_s]
    if len(within) < 2:
        raise ValueError(f"no two marks between {from_s} and {to_s} s")
    return (within[-1].cpu_s - within[0].cpu_s) / (within[-1].at_s - within[0].at_s)


def memory_of(pids: Iterable[int]) -> Memory:
    """Return the memory of processes together.

    One that is gone, or not ours to look into, counts nothing.

    Neither does a child that has not begun its program yet: between vfork and exec it has its
    parent's memory.
    """
    counted: list[int] = []
    for pid in pids:
        if not any(_have_one_memory(pid, other) for other in counted):
            counted.append(pid)
    return _sum([parse_rollup(_rollup(pid)) for pid in counted])


def _have_one_memory(pid: int, other: int) -> bool:
    order: int = _libc.syscall(_KCMP, pid, other, _KCMP_VM, 0, 0)  # -1 where it cannot be known
    return order == 0


# Of x86-64 (asm/unistd_64.h and linux/kcmp.h).
_KCMP, _KCMP_VM = 312, 1
_libc = ctypes.CDLL(None)


def parse_rollup(text: str) -> Memory:
    """Return what ``/proc/PID/smaps_rollup`` says."""
    found = {
        name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+): +(\d+) kB$", text, re.MULTILINE)
    }
    private = found.get("Private_Clean", 0) + found.get("Private_Dirty", 0)
    return Memory(found.get("Rss", 0), found.get("Pss", 0), private)


def _rollup(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return ""


def _sum(memories: Sequence[Memory]) -> Memory:
    return (
        Memory(*(sum(values) for values in zip(*memories, strict=True)))
        if memories
        else Memory(0, 0, 0)
    )


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open; 0 where it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
