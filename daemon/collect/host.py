"""Counters of the processes of a run and of its host, from psutil and /proc, about once a second.

What a process or a machine lacks, or does not let us read, is a missing point, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psutil

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.store.records import Identity, Point, PointsTaken

_TICK_NS = SECOND_NS // processes.CLOCK_TICKS


class HostCollector:
    """Reads counters; keeps the last reading of those that are shown as rates."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._handles: dict[Identity, psutil.Process] = {}
        self._last: dict[tuple[Identity, int | str], tuple[int, float]] = {}

    def collect(self, identities: Iterable[Identity], python_threads: dict[Identity, frozenset[int]]) -> PointsTaken:
        """Read the host, these processes and these of their threads (OS thread ids)."""
        points = list(self._host())
        wanted = set(identities)
        self._handles = {identity: handle for identity, handle in self._handles.items() if identity in wanted}
        self._last = {key: value for key, value in self._last.items() if key[0] in wanted}
        for identity in wanted:
            try:
                points += self._process(identity)
            except (psutil.Error, OSError):
                continue
            points += self._threads(identity, python_threads.get(identity, frozenset()))
        return PointsTaken(self._clock.now_ns(), tuple(points))

    def _host(self) -> Iterator[Point]:
        memory = psutil.virtual_memory()
        yield Point("host_cpu_share", psutil.cpu_percent() / 100)
        yield Point("host_memory_used_bytes", memory.total - memory.available)
        yield Point("host_memory_total_bytes", memory.total)
        yield Point("host_load_1min", psutil.getloadavg()[0])

    def _process(self, identity: Identity) -> Iterator[Point]:
        stat = processes.read_stat(identity.pid)
        if stat is None or stat.start_ticks != identity.start_ticks:
            return
        if identity not in self._handles:
            self._handles[identity] = psutil.Process(identity.pid)
        handle = self._handles[identity]
        yield Point("rss_bytes", handle.memory_info().rss, identity)
        yield Point("threads", stat.threads, identity)
        yield from self._rate("cpu_cores", identity, "cpu", stat.cpu_ticks * _TICK_NS / SECOND_NS)
        counters = handle.io_counters()
        # The bytes that system calls moved, not those that reached a disk: a network file system counts here alone.
        yield from self._rate("read_bytes_per_s", identity, "read", counters.read_chars)
        yield from self._rate("write_bytes_per_s", identity, "write", counters.write_chars)

    def _threads(self, identity: Identity, os_tids: frozenset[int]) -> Iterator[Point]:
        for os_tid in os_tids:
            stat = processes.read_stat(identity.pid, os_tid)
            if stat is not None:
                seconds = stat.cpu_ticks * _TICK_NS / SECOND_NS
                for point in self._rate("cpu_cores", identity, os_tid, seconds):
                    yield Point(point.name, point.value, identity, os_tid)

    def _rate(self, name: str, identity: Identity, what: int | str, total: float) -> Iterator[Point]:
        """Yield by how much a total grew a second since the last reading; nothing at the first."""
        now_ns = self._clock.now_ns()
        before = self._last.get((identity, what))
        self._last[identity, what] = (now_ns, total)
        if before is not None and now_ns > before[0]:
            yield Point(name, max(total - before[1], 0.0) * SECOND_NS / (now_ns - before[0]), identity)
