"""One look at a run that may hang: the stacks of its processes, what their threads wait for, and their counters.

Blocking, and meant for a thread of its own. Nothing is stopped; who cannot be read is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon import processes
from profd.daemon.hangs.waits import Wait, name_of_stranger, read_wait
from profd.daemon.stacks.dump import DumpedThread, DumpFailed, take_dump
from profd.daemon.store.records import Frame, HangGroup, Identity, Stand
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member

# Heartbeats of loggers and thread pools, and queues that ask every few seconds whether their workers live.
_BYTES_PER_S = 64 << 10
_SWITCHES_PER_S = 5.0
_SPARE_SWITCHES = 3
_IDLE_CORES = 0.03
_SPARE_CPU_S = 0.03


class Counters(NamedTuple):
    """Of all processes together: bytes read and written, CPU time; of some main threads: how often they waited."""

    io_bytes: int
    switches: int
    cpu_s: float = 0.0

    def moved_since(self, before: Counters, seconds: float, *, steps_are_known: bool) -> bool:
        """Say whether something went on between two looks.

        A loop that polls in short sleeps is not told from one that works by its waits, but by its steps.
        """
        if self.has_read_or_written_since(before, seconds):
            return True
        if self.cpu_s - before.cpu_s > _IDLE_CORES * seconds + _SPARE_CPU_S:
            return True
        allowed = _SWITCHES_PER_S * seconds + _SPARE_SWITCHES
        return not steps_are_known and self.switches - before.switches > allowed

    def has_read_or_written_since(self, before: Counters, seconds: float) -> bool:
        """Say whether more was read and written between two looks than heartbeats are."""
        return self.io_bytes - before.io_bytes > _BYTES_PER_S * seconds


def read_counters(pids: Iterable[int], main_pids: Iterable[int]) -> Counters:
    """Read the counters of processes; what is gone, or not ours to read, counts nothing."""
    seen = tuple(pids)
    return Counters(sum(map(_io_bytes, seen)), sum(map(_switches, main_pids)), sum(map(_cpu_s, seen)))


def _cpu_s(pid: int) -> float:
    found = processes.read_stat(pid)
    return found.cpu_ticks / processes.CLOCK_TICKS if found else 0.0


def _io_bytes(pid: int) -> int:
    return sum(processes.io_bytes(pid) or ())


def _switches(pid: int) -> int:
    """Return how often the main thread of a process gave up its CPU to wait."""
    return int(processes.status(pid).get("voluntary_ctxt_switches", 0))


# A look takes some 20 ms a process, and five hundred workers stand alike.
MOST_PROCESSES = 64

Stack = tuple[Frame, ...]


class Standing(NamedTuple):
    """Where a thread stands and what it waits for; ``stack`` is from the root to the leaf."""

    member: Member
    thread: str
    is_main: bool
    stack: Stack
    wait: Wait


class Look(msgspec.Struct, frozen=True):
    """What was seen at one time; ``unread`` says of how many processes no stack was."""

    at_ns: int
    standing: tuple[Standing, ...]
    counters: Counters
    unread: int

    def main_stacks(self) -> dict[Identity, Stack]:
        """Return where the main threads of the training processes stand."""
        return {row.member.identity: row.stack for row in self.mains()}

    def mains(self) -> list[Standing]:
        """Return the main threads of the training processes."""
        return [row for row in self.standing if row.is_main and row.member.role == roles.MAIN]

    def groups(self) -> tuple[HangGroup, ...]:
        """Return all threads by where they stand: main threads first, then those in which most stand."""
        found: defaultdict[tuple[bool, Stack], list[Stand]] = defaultdict(list)
        for row in self.standing:
            found[row.is_main, row.stack].append(_stand_of(row))
        ordered = sorted(found.items(), key=lambda item: (not item[0][0], -len(item[1])))
        return tuple(HangGroup(stack, tuple(stands)) for (_, stack), stands in ordered)


def take_look(members: Sequence[Member], at_ns: int, *, mains_only: bool) -> Look:
    """Look at the Python processes among ``members``, or at those alone that train; takes some 20 ms each."""
    by_pid = {member.identity.pid: member for member in members}
    mains = [member for member in members if is_training(member)]
    seen = mains if mains_only else sorted(filter(_is_python, members), key=lambda member: member.role != roles.MAIN)
    standing: list[Standing] = []
    unread = max(len(seen) - MOST_PROCESSES, 0)
    for member in seen[:MOST_PROCESSES]:
        found = _standing_of(member, by_pid)
        unread += not found
        standing += found
    counters = read_counters(by_pid, [member.identity.pid for member in mains])
    return Look(at_ns, tuple(standing), counters, unread)


def is_training(member: Member) -> bool:
    """Say whether a process is one that trains."""
    return member.role == roles.MAIN and member.python is not None


def name_of_member(member: Member) -> str:
    """Return who a process is, in words: rank 0, worker 2 of rank 0, the main process, helper 4711."""
    pid = member.identity.pid
    if member.role == roles.MAIN:
        return "the main process" if member.rank is None else f"rank {member.rank}"
    of_rank = "" if member.rank is None else f" of rank {member.rank}"
    return f"{member.role} {member.ordinal}{of_rank}" if member.ordinal is not None else f"{member.role} {pid}{of_rank}"


def _is_python(member: Member) -> bool:
    return member.python is not None


def _standing_of(member: Member, by_pid: Mapping[int, Member]) -> list[Standing]:
    """Return where the threads of a process stand; nothing where it cannot be read."""
    pid = member.identity.pid

    def name_of(other: int) -> str:
        return f"{name_of_member(by_pid[other])} (pid {other})" if other in by_pid else name_of_stranger(other)

    try:
        threads = take_dump(pid, tries=2)
    except DumpFailed:
        return []
    return [
        Standing(
            member,
            thread.thread_name or "thread",
            _is_main(thread, pid),
            tuple(Frame(frame.name, frame.filename, frame.line) for frame in reversed(thread.frames)),
            read_wait(pid, thread.os_thread_id or pid, name_of),
        )
        for thread in threads
    ]


def _is_main(thread: DumpedThread, pid: int) -> bool:
    return thread.thread_name == "MainThread" or (thread.thread_name is None and thread.os_thread_id == pid)


def _stand_of(row: Standing) -> Stand:
    member = row.member
    return Stand(
        who=name_of_member(member),
        pid=member.identity.pid,
        role=member.role,
        rank=member.rank,
        thread=row.thread,
        is_main=row.is_main,
        wait=row.wait.text,
    )
