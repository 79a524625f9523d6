"""Counters of the processes of a run and of its host, from psutil and /proc, about once a second.

What a process or a machine lacks, or does not let us read, is a missing point, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psutil

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.store.records import Identity, Point, PointsTaken


class HostCollector:
    """Reads counters; keeps the last reading of those that are shown as rates."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[tuple[Identity, int | str], tuple[int, float]] = {}
        self._now: dict[tuple[Identity, int | str], tuple[int, float]] = {}
        self._has_read_host = False

    def collect(self, identities: Iterable[Identity], python_threads: dict[Identity, frozenset[int]]) -> PointsTaken:
        """Read the host, these processes and these of their threads (OS thread ids)."""
        # Who is not read this time is forgotten: a run of weeks sees many threads come and go.
        self._before, self._now = self._now, {}
        points = list(self._host())
        for identity in identities:
            stat = processes.read_stat(identity.pid)
            if stat is not None and stat.start_ticks == identity.start_ticks and stat.state not in "ZX":
                points += self._process(identity, stat)
                points += self._threads(identity, python_threads.get(identity, frozenset()))
        return PointsTaken(self._clock.now_ns(), tuple(points))

    def _host(self) -> Iterator[Point]:
        memory = psutil.virtual_memory()
        cpu_share = psutil.cpu_percent() / 100
        if self._has_read_host:  # the first answer is about no time at all
            yield Point("host_cpu_share", cpu_share)
        self._has_read_host = True
        yield Point("host_memory_used_bytes", memory.total - memory.available)
        yield Point("host_memory_total_bytes", memory.total)
        yield Point("host_load_1min", psutil.getloadavg()[0])

    def _process(self, identity: Identity, stat: processes.Stat) -> Iterator[Point]:
        rss_bytes = processes.rss_bytes(identity.pid)
        if rss_bytes is not None:
            yield Point("rss_bytes", rss_bytes, identity)
        yield Point("threads", stat.threads, identity)
        yield from self._rate("cpu_cores", identity, "cpu", stat.cpu_ticks / processes.CLOCK_TICKS)
        io_bytes = processes.io_bytes(identity.pid)
        if io_bytes is not None:
            yield from self._rate("read_bytes_per_s", identity, "read", io_bytes[0])
            yield from self._rate("write_bytes_per_s", identity, "write", io_bytes[1])

    def _threads(self, identity: Identity, os_tids: frozenset[int]) -> Iterator[Point]:
        for os_tid in os_tids:
            stat = processes.read_stat(identity.pid, os_tid)
            if stat is not None:
                for point in self._rate("cpu_cores", identity, os_tid, stat.cpu_ticks / processes.CLOCK_TICKS):
                    yield Point(point.name, point.value, identity, os_tid)

    def _rate(self, name: str, identity: Identity, what: int | str, total: float) -> Iterator[Point]:
        """Yield by how much a total grew a second since the last reading; nothing at the first."""
        now_ns = self._clock.now_ns()
        before = self._before.get((identity, what))
        self._now[identity, what] = (now_ns, total)
        if before is not None and now_ns > before[0]:
            yield Point(name, max(total - before[1], 0.0) * SECOND_NS / (now_ns - before[0]), identity)
