"""Control groups of processes: their limits, throttling and OOM kills.

It also tells how near processes are to the limits.

A limit of any group above binds a process too, so groups are read with all groups above them that
we can see.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.controlgroups import Group, Hierarchy, groups_of, hierarchies
from profd.daemon.events import EventKind
from profd.daemon.machine.machine import Rates, Watched, pressure
from profd.daemon.store.records import EventHappened, Identity, Point


class MemoryState(NamedTuple):
    """Memory of a group; the working set leaves out the file cache that the kernel can drop."""

    limit_bytes: int
    working_set_bytes: int


class CpuState(NamedTuple):
    """CPU time of a group: its limit, its periods so far, and the throttled ones.

    In a throttled period the group had used up its limit.
    """

    limit_cores: float
    periods: int
    throttled_periods: int


# by the version of a group
_MEMORY = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    2: ("memory.max", "memory.current"),
}
_INACTIVE = {1: b"total_inactive_file", 2: b"inactive_file"}
_CPU = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}
_EVENTS = {1: "memory.oom_control", 2: "memory.events"}


def memory_of(group: Group) -> MemoryState | None:
    """Return the memory of a group that has a limit; None of one that has none."""
    files = (f"{group.folder}/{name}" for name in _MEMORY[group.version])
    limit, used = map(processes.read_number, files)
    # Version 1 writes "no limit" as the greatest number of whole pages.
    if limit is None or used is None or limit >= 1 << 62:
        return None
    cache = processes.read_pairs(f"{group.folder}/memory.stat")
    return MemoryState(limit, max(used - cache.get(_INACTIVE[group.version], 0), 0))


def cpu_of(group: Group) -> CpuState | None:
    """Return the CPU time of a group that has a limit; None of one that has none."""
    files = (f"{group.folder}/{name}" for name in _CPU[group.version])
    words = b" ".join(processes.read(file) or b"" for file in files).split()
    if len(words) != 2 or not all(word.isdigit() and int(word) for word in words):
        return None
    stat = processes.read_pairs(f"{group.folder}/cpu.stat")
    periods, throttled = stat.get(b"nr_periods", 0), stat.get(b"nr_throttled", 0)
    return CpuState(int(words[0]) / int(words[1]), periods, throttled)


def oom_kills_of(group: Group) -> int | None:
    """Return how many processes of a group the kernel has ended for lack of memory.

    None if it does not count.
    """
    file = f"{group.folder}/{_EVENTS[group.version]}"
    return processes.read_pairs(file).get(b"oom_kill")


class _Groups(NamedTuple):
    """The groups that a process is in, the innermost first."""

    memory: list[Group]
    cpu: list[Group]


class Limits:
    """The groups of the processes, looked up for each new process, and for all once a minute."""

    interval_s = 1.0

    def __init__(self, clock: Clock) -> None:
        self._clock, self._rates, self._slow_rates = clock, Rates(clock), Rates(clock)
        self._mounted: list[Hierarchy] = []
        self._groups: dict[Identity, _Groups] = {}
        self._kills: dict[Group, int] = {}
        self._searched_ns = self._readings = 0

    def read(self, watched: Watched) -> Iterator[Point | EventHappened]:
        """Yield the worst throttling and OOM kills each time.

        The rest comes every fifth time, and limits come when they are looked up.
        """
        yield from self._search(watched)
        self._rates.turn()
        shares = []
        for group in _different(one.cpu for one in self._groups.values()):
            cpu = cpu_of(group)
            if cpu is not None:
                periods = self._rates.grown((group, "periods"), cpu.periods)
                throttled = self._rates.grown((group, "throttled"), cpu.throttled_periods)
                if throttled is not None:
                    shares.append(min(throttled / periods, 1.0) if periods else 0.0)
        if shares:
            yield Point("cgroup_cpu_throttled_share", max(shares))
        yield from self._kills_since()
        if self._readings % 5 == 0:
            self._slow_rates.turn()
            for group in _different(one.memory for one in self._groups.values()):
                memory = memory_of(group)
                if memory is not None:
                    yield Point(
                        "cgroup_memory_working_set_bytes",
                        memory.working_set_bytes,
                        device=group.path,
                    )
            for group in self._innermost():
                if group.version == 2:
                    path = group.folder + "/{}.pressure"
                    yield from pressure(self._slow_rates, "cgroup", path, group.path)
        self._readings += 1

    def _search(self, watched: Watched) -> Iterator[Point]:
        """Look up the groups of new processes, and yield the limits of those.

        Once a minute, look up the groups of all processes.
        """
        now_ns = self._clock.now_ns()
        if now_ns - self._searched_ns >= 60 * SECOND_NS:
            self._mounted = hierarchies()
            self._groups, self._searched_ns = {}, now_ns
        for gone in self._groups.keys() - set(watched.identities):
            del self._groups[gone]
        for identity in watched.identities:
            if identity not in self._groups:
                found = (groups_of(identity.pid, of, self._mounted) for of in ("memory", "cpu"))
                self._groups[identity] = groups = _Groups(*found)
                yield from _limits(identity, groups)

    def _innermost(self) -> set[Group]:
        """Return the groups that hold processes themselves."""
        return {groups.memory[0] for groups in self._groups.values() if groups.memory}

    def _kills_since(self) -> Iterator[EventHappened]:
        """Yield an event if the kernel ended processes of a group that holds ours.

        Groups above that one do not count.
        """
        # A known group stays known: its last process may be the one that was ended.
        for group in {*self._kills, *self._innermost()}:
            kills = oom_kills_of(group)
            if kills is None:
                self._kills.pop(group, None)
                continue
            ended = kills - self._kills.setdefault(group, kills)
            self._kills[group] = kills
            if ended > 0:
                processes = "a process" if ended == 1 else f"{ended} processes"
                text = (
                    f"out of memory: the kernel ended {processes} of the control group {group.path}"
                )
                yield EventHappened(self._clock.now_ns(), EventKind.OOM, text)


def _limits(identity: Identity, groups: _Groups) -> Iterator[Point]:
    """Yield the limits that bind a process."""
    for group in groups.memory:
        if (memory := memory_of(group)) is not None:
            limit = memory.limit_bytes
            yield Point("cgroup_memory_limit_bytes", limit, identity, device=group.path)
    for group in groups.cpu:
        if (cpu := cpu_of(group)) is not None:
            yield Point("cgroup_cpu_limit_cores", cpu.limit_cores, identity, device=group.path)


def _different(groups: Iterable[list[Group]]) -> list[Group]:
    """Return the groups of all processes, each once, in a steady order, at most 16."""
    return list(dict.fromkeys(itertools.chain.from_iterable(groups)))[:16]
