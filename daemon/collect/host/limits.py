"""What control groups allow the processes of a run, how near they are to it, and what happened when they reached it."""

from __future__ import annotations

from collections.abc import Iterator

from profd.daemon import procfile
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.collect.host import cgroup
from profd.daemon.collect.host.cgroup import Group, Hierarchy
from profd.daemon.collect.host.lane import Watched
from profd.daemon.collect.host.machine import pressure
from profd.daemon.collect.host.rates import Rates
from profd.daemon.store.records import EventHappened, Identity, Point

SEARCH_INTERVAL_S = 60.0
MOST_GROUPS = 16
OOM_EVENT = "oom"


class Limits:
    """Keeps which groups the processes are in: looked up as they come, and once a minute."""

    interval_s = 1.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rates = Rates(clock)
        self._slow_rates = Rates(clock)
        self._mounted: list[Hierarchy] = []
        self._memory: dict[Identity, list[Group]] = {}
        self._cpu: dict[Identity, list[Group]] = {}
        self._kills: dict[Group, int] = {}
        self._searched_ns = 0
        self._readings = 0

    def read(self, watched: Watched) -> Iterator[Point | EventHappened]:
        """Yield throttling and ended processes each time, the rest every fifth time, limits when looked up."""
        yield from self._search(watched)
        self._rates.turn()
        yield from self._throttling()
        yield from self._kills_since()
        if self._readings % 5 == 0:
            self._slow_rates.turn()
            yield from self._memory_used()
            yield from self._pressure()
        self._readings += 1

    def _search(self, watched: Watched) -> Iterator[Point]:
        """Look up the groups of processes that are new, of all once a minute, and yield the limits of those."""
        now_ns = self._clock.now_ns()
        if now_ns - self._searched_ns >= SEARCH_INTERVAL_S * SECOND_NS:
            self._mounted = cgroup.hierarchies(procfile.read("/proc/self/mountinfo"))
            self._memory, self._cpu, self._searched_ns = {}, {}, now_ns
        living = set(watched.identities)
        for known in (self._memory, self._cpu):
            for gone in known.keys() - living:
                del known[gone]
        for identity in watched.identities:
            if identity not in self._memory:
                self._memory[identity] = cgroup.groups_of(identity.pid, "memory", self._mounted)
                self._cpu[identity] = cgroup.groups_of(identity.pid, "cpu", self._mounted)
                yield from self._limits_of(identity)

    def _limits_of(self, identity: Identity) -> Iterator[Point]:
        for group in self._memory[identity]:
            memory = cgroup.memory_of(group)
            if memory is not None:
                yield Point("cgroup_memory_limit_bytes", memory.limit_bytes, identity, device=group.path)
        for group in self._cpu[identity]:
            cpu = cgroup.cpu_of(group)
            if cpu is not None:
                yield Point("cgroup_cpu_limit_cores", cpu.limit_cores, identity, device=group.path)

    def _throttling(self) -> Iterator[Point]:
        """Yield how often the groups had used up their CPU time, the worst of them, and for how long."""
        shares, lost = [], []
        for group in _different(self._cpu):
            cpu = cgroup.cpu_of(group)
            if cpu is not None:
                periods = self._rates.grown((group, "periods"), cpu.periods)
                throttled = self._rates.grown((group, "throttled"), cpu.throttled_periods)
                lost_s = self._rates.per_s((group, "lost"), cpu.throttled_s)
                if throttled is not None and lost_s is not None:
                    shares.append(min(throttled / periods, 1.0) if periods else 0.0)
                    lost.append(lost_s)
        if shares:
            yield Point("cgroup_cpu_throttled_share", max(shares))
            yield Point("cgroup_cpu_throttled_s_per_s", max(lost))

    def _memory_used(self) -> Iterator[Point]:
        for group in _different(self._memory):
            memory = cgroup.memory_of(group)
            if memory is not None:
                yield Point("cgroup_memory_used_bytes", memory.used_bytes, device=group.path)
                yield Point("cgroup_memory_working_set_bytes", memory.working_set_bytes, device=group.path)

    def _kills_since(self) -> Iterator[EventHappened]:
        """Yield an event where the kernel ended processes of a group: of the groups that hold ours, not those above."""
        # Those known stay known: the last process of a group may be the one that was ended.
        for group in {*self._kills, *(groups[0] for groups in self._memory.values() if groups)}:
            kills = cgroup.oom_kills_of(group)
            if kills is None:
                self._kills.pop(group, None)
                continue
            ended = kills - self._kills.setdefault(group, kills)
            self._kills[group] = kills
            if ended > 0:
                processes = "a process" if ended == 1 else f"{ended} processes"
                text = f"out of memory: the kernel ended {processes} of the control group {group.path}"
                yield EventHappened(self._clock.now_ns(), OOM_EVENT, text)

    def _pressure(self) -> Iterator[Point]:
        for group in {groups[0] for groups in self._memory.values() if groups and groups[0].version == 2}:
            yield from pressure(self._slow_rates, "cgroup", group.file("{}.pressure"), group.path)


def _different(groups: dict[Identity, list[Group]]) -> list[Group]:
    """Return the groups of all processes, each once, in a steady order and not more than can be afforded."""
    return list(dict.fromkeys(group for above in groups.values() for group in above))[:MOST_GROUPS]
