"""Take one look at a run that may hang.

A look has the stacks of the run's processes, what their threads wait for, and their counters.

It blocks, and is meant for a thread of its own. It stops nothing, and leaves out processes that
cannot be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.collectives.desync import DesyncVerdict, compare
from profd.daemon.collectives.ras import Answer
from profd.daemon.hangs.waits import Wait, name_of_stranger, read_wait
from profd.daemon.native.gil import waits_for_gil
from profd.daemon.sockets import listening
from profd.daemon.stacks.dump import DumpedThread, DumpFailed, take_dump
from profd.daemon.stacks.pyspy import read_cost_s
from profd.daemon.store.records import Frame, HangGroup, Stand
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member


def has_computed(cpu_s: float, seconds: float) -> bool:
    """Return whether CPU time in some seconds is more than that of heartbeats."""
    return cpu_s > 0.03 * seconds + 0.03


# A look takes some 20 ms a process, and five hundred workers have the same stacks.
MOST_PROCESSES = 64

Stack = tuple[Frame, ...]


class StackState(NamedTuple):
    """The stack of a thread, from the root to the leaf, and what the thread waits for.

    ``waits`` is how often a main thread has waited; it is 0 for any other. ``native`` are the
    native frames that the leaf called, from the innermost on, as far as they were read.
    ``os_tid`` is py-spy's.
    """

    member: Member
    thread: str
    is_main: bool
    stack: Stack
    wait: Wait
    waits: int = 0
    native: tuple[str, ...] = ()
    os_tid: int | None = None


class Look(msgspec.Struct, frozen=True):
    """Threads and counters of a run at one time.

    ``io_bytes`` is what all processes have read and written, ``switches`` how often the main
    threads that train have waited, ``others`` how often those of the other processes have, and
    ``cpu_s`` the CPU time of the processes of each rank. Small values of each mean nothing: loggers
    and thread pools have heartbeats, and queues ask every few seconds whether their workers live.
    ``unread`` is the number of processes without a stack.
    ``servers`` are the processes that train and listen for connections, by their PIDs.
    ``job`` is what NCCL's RAS said at that time, or None if it was not asked.
    """

    at_ns: int
    standing: tuple[StackState, ...]
    io_bytes: int = 0
    switches: int = 0
    cpu_s: Mapping[int | None, float] = {}
    unread: int = 0
    job: Answer | None = None
    others: int = 0
    servers: frozenset[int] = frozenset()

    def mains(self) -> list[StackState]:
        return [row for row in self.standing if row.is_main and row.member.role == roles.MAIN]

    def groups(self) -> tuple[HangGroup, ...]:
        """Return all threads, grouped by their stacks.

        Main threads come first, then the stacks that most threads have, and at last threads that
        run no Python.
        """
        found: defaultdict[tuple[bool, Stack, tuple[str, ...]], list[Stand]] = defaultdict(list)
        for row in self.standing:
            pid, role, rank = row.member.identity.pid, row.member.role, row.member.rank
            name, wait = name_of_member(row.member), row.wait
            of = name, pid, role, rank, row.thread, row.is_main
            stand = Stand(*of, wait.text, wait.kind, row.os_tid, wait.peers or ())
            found[row.is_main, row.stack, row.native].append(stand)
        ordered = sorted(
            found.items(),
            key=lambda item: (not item[0][0], not item[0][1], -len(item[1])),
        )
        return tuple(
            HangGroup(stack, tuple(stands), native) for (_, stack, native), stands in ordered
        )


class LookPair(NamedTuple):
    """Two looks at a run that may hang, and what went on between them."""

    first: Look
    second: Look

    @property
    def seconds(self) -> float:
        return (self.second.at_ns - self.first.at_ns) / SECOND_NS

    @property
    def cpu_s(self) -> float:
        return sum(self.second.cpu_s.values()) - sum(self.first.cpu_s.values())

    @property
    def has_transferred(self) -> bool:
        """Whether data was read or written."""
        return self.second.io_bytes - self.first.io_bytes > (64 << 10) * self.seconds

    @property
    def is_job_new(self) -> bool:
        """Whether NCCL answered the second time only: the next look compares its counts."""
        return self.first.job is None and self.second.job is not None

    @property
    def verdict(self) -> DesyncVerdict:
        """What NCCL's counts show."""
        return compare(*(look.job.status if look.job else None for look in self))

    @property
    def polls(self) -> bool:
        """Whether all that train sleep again and again, and at the same place: they poll.

        They do not if others wake up as often: they wait for those, which may be at work.
        """
        rows = [*self.first.mains(), *self.second.mains()]
        sleep = bool(rows) and all(row.wait.kind in ("sleep", "polling") for row in rows)
        others = self.second.others - self.first.others
        return sleep and self._is_often(self._waits) and not self._is_often(others)

    @property
    def _waits(self) -> int:
        """How often those that train have waited between the looks.

        Who waits for the GIL wakes up every 5 ms to ask for it, which is no progress.
        """
        asks = any(row.wait.kind == "gil" for row in self.second.mains())
        return 0 if asks else self.second.switches - self.first.switches

    def with_polls(self) -> LookPair:
        """Return the looks with polling as the wait of those that poll, and how often they do."""
        if not self.polls:
            return self
        woke = self._waits / self.seconds
        wait = Wait("polling", f"polls: it sleeps {woke:.0f} times a second; for what is unknown")
        rows = tuple(
            row._replace(wait=wait) if row.is_main and row.wait.kind == "sleep" else row
            for row in self.second.standing
        )
        return self._replace(second=msgspec.structs.replace(self.second, standing=rows))

    def has_moved(self, *, steps_are_known: bool) -> bool:
        """Return whether something went on; if steps are known, waits do not count: loops poll."""
        if has_computed(self.cpu_s, self.seconds) or self.has_transferred:
            return True
        if self._is_often(self._waits) and not steps_are_known and not self.polls:
            return True
        stood = {row.member.identity: row for row in self.first.mains()}
        pairs = [(stood.get(row.member.identity, row), row) for row in self.second.mains()]
        # Only data ends a wait for it, which may come slowly.
        return not pairs or any(
            was.stack != row.stack
            or (row.wait.is_transfer and self._is_often(row.waits - was.waits))
            for was, row in pairs
        )

    def _is_often(self, waits: int) -> bool:
        return waits > 5 * self.seconds + 3

    def has_spun(self) -> bool:
        """Return whether the processes that train only used one core each, and at least one did."""
        spinning = sum(row.wait.kind == "running" for row in self.second.mains())
        # Its other threads count too; a process that computes on many cores does not spin.
        is_one_core = self.cpu_s <= 1.15 * spinning * self.seconds
        return spinning > 0 and is_one_core and not self.has_transferred


def take_look(members: Sequence[Member], at_ns: int, *, mains_only: bool) -> Look:
    """Look at the Python processes among ``members``, or only at those that train.

    This takes some 20 ms for each.
    """
    by_pid = {member.identity.pid: member for member in members}
    mains = [member for member in members if member.is_training]
    pythons = [member for member in members if member.python is not None]
    seen = mains if mains_only else sorted(pythons, key=lambda member: member.role != roles.MAIN)
    standing: list[StackState] = []
    unread = max(len(seen) - MOST_PROCESSES, 0)
    for member in seen[:MOST_PROCESSES]:
        found = _standing_of(member, by_pid, main_only=mains_only)
        unread += not found
        standing += found
    # A network file system counts only in the first two, a mapped file only in the last.
    of_io = (processes.read_pairs(f"/proc/{pid}/io") for pid in by_pid)
    io_bytes = sum(io.get(key, 0) for io in of_io for key in (b"rchar", b"wchar", b"read_bytes"))
    switches = sum(map(_waits_of, mains))
    others = sum(_waits_of(member) for member in members) - switches
    cpu_s: defaultdict[int | None, float] = defaultdict(float)
    for pid, member in by_pid.items():
        if (stat := processes.read_stat(pid)) is not None:
            cpu_s[member.rank] += stat.cpu_s
    servers = frozenset[int]() if mains_only else _servers_among(mains)
    return Look(
        at_ns, tuple(standing), io_bytes, switches, cpu_s, unread, others=others, servers=servers
    )


def _servers_among(members: Sequence[Member]) -> frozenset[int]:
    """Return the PIDs of those that listen for connections."""
    pids = (member.identity.pid for member in members)
    return frozenset(pid for pid in pids if any(listening(pid)))


def cost_s(members: Sequence[Member], *, mains_only: bool) -> float:
    """Return the CPU seconds of a look, as estimated from the number of threads.

    Reading what each thread waits for takes as long as reading its stack.
    """
    stats = (processes.read_stat(one.identity.pid) for one in members if one.python is not None)
    threads = sorted((stat.threads for stat in stats if stat is not None), reverse=True)
    stands_s = sum(map(read_cost_s, threads[:MOST_PROCESSES]))
    return stands_s if mains_only else 2 * stands_s


def name_of_member(member: Member) -> str:
    """Return the name of a process: rank 0, worker 2 of rank 0, the main process, helper 4711."""
    pid = member.identity.pid
    if member.role == roles.MAIN:
        return "the main process" if member.rank is None else f"rank {member.rank}"
    of_rank = "" if member.rank is None else f" of rank {member.rank}"
    number = pid if member.ordinal is None else member.ordinal
    return f"{member.role} {number}{of_rank}"


def _standing_of(
    member: Member, by_pid: Mapping[int, Member], *, main_only: bool
) -> list[StackState]:
    """Return the stacks and waits of a process's threads, or only of its main one.

    Returns nothing if the process cannot be read.
    """
    pid = member.identity.pid

    def name_of(other: int) -> str:
        return (
            f"{name_of_member(by_pid[other])} (pid {other})"
            if other in by_pid
            else name_of_stranger(other)
        )

    try:
        threads = take_dump(pid, tries=2)
    except DumpFailed:
        return []
    standing = []
    leader, gil = _leader(member, threads), waits_for_gil(pid, threads)
    for thread in threads:
        name, os_tid, is_main = thread.thread_name, thread.os_thread_id, thread is leader
        if main_only and not is_main:
            continue
        stack = stack_of(thread)
        wait, waits = read_wait(pid, os_tid or pid, name_of), _waits_of(member) if is_main else 0
        if held := gil.get(os_tid or pid):
            wait = wait._replace(kind="gil", text=held.text, peers=held.holders)
        row = StackState(member, name or "thread", is_main, stack, wait, waits, os_tid=os_tid)
        standing.append(row)
    return standing


def stack_of(thread: DumpedThread) -> Stack:
    frames = reversed(thread.frames)
    return tuple(Frame(frame.name, frame.filename, frame.line) for frame in frames)


def _leader(member: Member, threads: Sequence[DumpedThread]) -> DumpedThread | None:
    """Return the thread that is known to lead, or the main one if there is none or it has ended."""
    ident, pid = member.leader and member.leader.ident, member.identity.pid
    led = [one for one in threads if one.thread_id == ident]
    mains = [one for one in threads if (one.thread_name or one.os_thread_id) in ("MainThread", pid)]
    return next(iter(led + mains), None)


def _waits_of(member: Member) -> int:
    """Return how often the leading thread of a process has waited."""
    os_tid = member.leader.os_tid if member.leader else None
    switches = processes.status(member.identity.pid, os_tid).get("voluntary_ctxt_switches", 0)
    return int(switches)
