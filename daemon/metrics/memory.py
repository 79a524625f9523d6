"""How full the machine is, and the control group of the run that is nearest to its limit."""

from __future__ import annotations

from collections.abc import Iterator

from profd.daemon.metrics.catalog import (
    CGROUP_MEMORY_LIMIT,
    CGROUP_MEMORY_USED,
    HOST_MEMORY_TOTAL,
    HOST_MEMORY_USED,
    Sample,
)
from profd.daemon.metrics.look import Look

HOST_USED = "host_memory_used_bytes"
HOST_TOTAL = "host_memory_total_bytes"
CGROUP_USED = "cgroup_memory_working_set_bytes"
CGROUP_LIMIT = "cgroup_memory_limit_bytes"
_OF_HOST = ((HOST_MEMORY_USED, HOST_USED), (HOST_MEMORY_TOTAL, HOST_TOTAL))


class SharedMemory:
    """Memory that the run shares with others."""

    def take(self, look: Look) -> Iterator[Sample]:
        """Tell the newest values; what the kernel does not tell is left out."""
        for metric, name in _OF_HOST:
            value = look.value(name)
            if value is not None:
                yield Sample(metric, (look.run,), value)
        groups = list(_groups(look))
        if groups:
            _, used, limit = min(groups)
            yield Sample(CGROUP_MEMORY_USED, (look.run,), used)
            yield Sample(CGROUP_MEMORY_LIMIT, (look.run,), limit)


def _groups(look: Look) -> Iterator[tuple[float, float, float]]:
    """Yield what is left, what is used and the limit of each control group."""
    for series in look.of_name(CGROUP_LIMIT):
        limit = look.newest.get(series.id)
        used = look.value(CGROUP_USED, series.device)
        if limit is not None and used is not None:
            yield limit - used, used, limit
