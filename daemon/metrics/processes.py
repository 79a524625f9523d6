"""The processes of the run by role, and their memory by rank and role: however many come and go, as few series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from profd.daemon.metrics.catalog import PROCESS_GPU_MEMORY, PROCESS_MEMORY, PROCESSES, Metric, Sample
from profd.daemon.metrics.look import Look, rank_of
from profd.daemon.store.rows import ProcessRow
from profd.daemon.store.sums.held import MEMORY_OF_PROCESS

RSS = "rss_bytes"
ROLES = ("main", "worker", "helper", "launcher")
_SERIES = ((PROCESS_MEMORY, RSS), (PROCESS_GPU_MEMORY, MEMORY_OF_PROCESS))

_Group = tuple[str, str]


class Processes:
    """The processes of one run; a group of them that had memory once is told from then on."""

    def __init__(self) -> None:
        self._groups: dict[Metric, set[_Group]] = {metric: set() for metric, _ in _SERIES}

    def take(self, look: Look) -> Iterator[Sample]:
        """Count the processes, and add up what each last told."""
        living = {member.id: member for member in look.reader.processes.values() if member.ended_ns is None}
        roles = Counter(member.role for member in living.values())
        for role in ROLES:
            yield Sample(PROCESSES, (look.run, role), roles[role])
        for metric, name in _SERIES:
            sums = _by_group(look, name, living)
            self._groups[metric] |= sums.keys()
            for group in sorted(self._groups[metric]):
                yield Sample(metric, (look.run, *group), sums.get(group, 0.0))


def _by_group(look: Look, name: str, living: dict[int, ProcessRow]) -> dict[_Group, float]:
    """Return the newest values of a series of processes, added up by rank and role."""
    sums: dict[_Group, float] = {}
    for series in look.of_name(name):
        member = living.get(series.process or 0)
        value = look.newest.get(series.id)
        if member is not None and value is not None:
            group = rank_of(member), member.role
            sums[group] = sums.get(group, 0.0) + value
    return sums
