"""How busy jobs are, by the CPU time of their processes: a notebook may be open for weeks, and compute for an hour."""

from __future__ import annotations

from collections.abc import Iterable

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.host.census import ProcessTable
from profd.daemon.store.records import Identity

QUIET_BELOW_CORES = 0.02
"""A job that uses less waits for somebody: what a kernel of a notebook takes to listen is a tenth of it."""
_LOOK_EVERY_S = 10.0


class Activity:
    """What was seen of the jobs that are asked about."""

    def __init__(self, table: ProcessTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._seen: dict[Identity, tuple[int, float]] = {}
        """When each was looked at last, and the CPU seconds that it had used by then."""
        self._busy_ns: dict[Identity, int] = {}
        """When it was last known to be busy; the first look counts."""

    def look(self, roots: Iterable[Identity]) -> None:
        """Look at jobs, those that were not looked at lately, and forget all others."""
        now_ns, roots = self._clock.now_ns(), set(roots)
        for root in self._seen.keys() - roots:
            del self._seen[root], self._busy_ns[root]
        for root in roots:
            at_ns, before_s = self._seen.get(root, (0, 0.0))
            if now_ns - at_ns < _LOOK_EVERY_S * SECOND_NS:
                continue
            cpu_s = self._table.cpu_s(root.pid)
            if not at_ns or cpu_s - before_s >= QUIET_BELOW_CORES * (now_ns - at_ns) / SECOND_NS:
                self._busy_ns[root] = now_ns
            self._seen[root] = (now_ns, cpu_s)

    def quiet_s(self, root: Identity) -> float:
        """Return for how long a job has been quiet by now; 0 of one that was not looked at."""
        if root not in self._seen:
            return 0.0
        return (self._seen[root][0] - self._busy_ns[root]) / SECOND_NS
