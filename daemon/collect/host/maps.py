"""Proportional and unique memory of processes, whose reading the kernel pays for page by page.

While it walks the pages of a process it holds a lock that the process needs to map memory: 12 ms a gigabyte of small
pages, measured on one machine. So no process of more than ``LARGEST_BYTES`` is read, readings are paid for out of a
small budget, and a process is the rarer read the dearer it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from profd.daemon import processes, procfile
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.collect.host.lane import Watched
from profd.daemon.store.records import Identity, Point

LEAST_INTERVAL_S = 10.0
# Of one core, over all processes.
BUDGET_SHARE = 0.0005
CAPITAL_NS = 20 * MILLISECOND_NS
LARGEST_BYTES = 4 << 30
"""What is resident of a process tells before the first reading how long that can take."""
_MISSING: dict[bytes, int] = {}


class MemoryMaps:
    """Reads the processes of a run in turns."""

    interval_s = 1.0

    def __init__(self, clock: Clock, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        """Account for readings by ``cpu_ns``, the CPU time of the thread that reads."""
        self._clock = clock
        self._cpu_ns = cpu_ns
        self._due_ns: dict[Identity, int] = {}
        self._balance_ns = CAPITAL_NS
        self._earned_to_ns = clock.now_ns()

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield the points of those that are due, as far as the budget goes."""
        self._due_ns = {identity: self._due_ns.get(identity, 0) for identity in watched.identities}
        for identity in sorted(watched.identities, key=lambda identity: self._due_ns[identity]):
            now_ns = self._clock.now_ns()
            self._earn(now_ns)
            if self._balance_ns <= 0 or now_ns < self._due_ns[identity]:
                return
            self._due_ns[identity] = now_ns + int(LEAST_INTERVAL_S * SECOND_NS)
            yield from self._process(identity)

    def _earn(self, now_ns: int) -> None:
        earned_ns = int((now_ns - self._earned_to_ns) * BUDGET_SHARE)
        self._balance_ns = min(self._balance_ns + earned_ns, CAPITAL_NS)
        self._earned_to_ns = now_ns

    def _process(self, identity: Identity) -> Iterator[Point]:
        before_ns = self._cpu_ns()
        kilobytes = procfile.read_pairs(f"/proc/{identity.pid}/smaps_rollup") if _may_be_read(identity) else _MISSING
        self._balance_ns -= self._cpu_ns() - before_ns
        if b"Pss" in kilobytes:
            yield Point("pss_bytes", kilobytes[b"Pss"] * 1024, identity)
            unique = kilobytes.get(b"Private_Clean", 0) + kilobytes.get(b"Private_Dirty", 0)
            yield Point("uss_bytes", (unique + kilobytes.get(b"Private_Hugetlb", 0)) * 1024, identity)


def _may_be_read(identity: Identity) -> bool:
    """Say whether a process is there, and small enough."""
    stat = processes.read_running(*identity)
    return stat is not None and stat.rss_bytes <= LARGEST_BYTES
