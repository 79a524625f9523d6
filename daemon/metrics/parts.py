"""Metrics of findings, GPUs, memory, processes and steps."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator

from profd.daemon.analyze.steps import COUNT_SERIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.finding import SEVERITIES
from profd.daemon.metrics.catalog import (
    CGROUP_MEMORY_LIMIT,
    CGROUP_MEMORY_USED,
    FINDING,
    FINDINGS,
    FINDINGS_LOOKED,
    GPU_BUSY_SECONDS,
    GPU_MEMORY_TOTAL,
    GPU_MEMORY_USED,
    GPU_UTILIZATION,
    HOST_MEMORY_TOTAL,
    HOST_MEMORY_USED,
    PROCESS_GPU_MEMORY,
    PROCESS_MEMORY,
    PROCESSES,
    STEP_RATE,
    STEPS,
    Metric,
    Sample,
)
from profd.daemon.metrics.look import Integral, Look, rank_of
from profd.daemon.metrics.trends import Trends
from profd.daemon.store.findings import rules_found
from profd.daemon.store.rows import PointRow, ProcessRow, SeriesRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS, UTILIZATION


class Findings:
    """The rules that found something."""

    def take(self, look: Look) -> Iterator[Sample]:
        """Tell which of them hold; one that was found once has a series from then on."""
        found, looked_ns = rules_found(look.reader), look.reader.info.analyzed_ns
        for severity in SEVERITIES:
            held = sum(one.holds for one in found if one.severity == severity)
            yield Sample(FINDINGS, (look.run, severity), held)
        for one in found:
            yield Sample(FINDING, (look.run, one.rule, one.severity), one.holds)
        yield Sample(FINDINGS_LOOKED, (look.run,), math.nan if looked_ns is None else looked_ns / SECOND_NS)


MEMORY_USED = "gpu_memory_used_bytes"
MEMORY_TOTAL = "gpu_memory_total_bytes"
_PREFIX = "gpu"


class Gpus:
    """The GPUs of one run; a device that was read stays."""

    def __init__(self) -> None:
        self._busy: dict[str, Integral] = {}

    def take(self, look: Look) -> Iterator[Sample]:
        """Take in the new readings of utilization."""
        for series in look.of_name(UTILIZATION):
            if series.process is None and series.device is not None:
                yield from self._take(look, series, series.device)

    def _take(self, look: Look, series: SeriesRow, device: str) -> Iterator[Sample]:
        busy = self._busy.setdefault(device, Integral(look.began_ns))
        busy.add(look.reader.points(series.id, busy.newest_ns + 1))
        labels = (look.run, device.removeprefix(_PREFIX))
        yield Sample(GPU_UTILIZATION, labels, _known(busy.mean(look.reader.info.end_ns)))
        yield Sample(GPU_BUSY_SECONDS, labels, busy.total_s)
        yield Sample(GPU_MEMORY_USED, labels, _known(look.value(MEMORY_USED, device)))
        yield Sample(GPU_MEMORY_TOTAL, labels, _known(look.value(MEMORY_TOTAL, device)))


def _known(value: float | None) -> float:
    return math.nan if value is None else value


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


_COUNTS = 9
"""The rate is that over so many counts, which are seconds apart."""
_STALE_NS = 60 * SECOND_NS
"""After so long without a count nobody knows the rate."""

Counts = deque[PointRow]


class StepCounts:
    """The newest counts of each rank; a rank that was counted keeps its number when its process ends."""

    def __init__(self, trends: Trends) -> None:
        """Ask ``trends`` for the rate where nothing is counted."""
        self._trends = trends
        self._counts: dict[str, tuple[int, Counts]] = {}

    def take(self, look: Look) -> Iterator[Sample]:
        """Take in the new counts."""
        ranks = {member.id: rank_of(member) for member in look.trainers()}
        for series in look.of_name(COUNT_SERIES):
            if series.process in ranks and series.id in look.newest:
                self._catch_up(look, ranks[series.process], series.id)
        for rank, (_, counts) in self._counts.items():
            yield Sample(STEPS, (look.run, rank), counts[-1].value)
            yield Sample(STEP_RATE, (look.run, rank), _rate(counts, look.reader.info.end_ns))
        if not self._counts and ranks and self._trends.step_rate is not None:
            # Ranks step together, so that of one says it for all.
            yield Sample(STEP_RATE, (look.run, min(ranks.values())), self._trends.step_rate)

    def _catch_up(self, look: Look, rank: str, series: int) -> None:
        known, counts = self._counts.get(rank, (0, None))
        # The younger process is the one that the rank is now.
        if counts is None or series > known:
            counts = deque(maxlen=_COUNTS)
        elif series < known:
            return
        counts.extend(look.reader.points(series, counts[-1].at_ns + 1 if counts else look.began_ns))
        if counts:
            self._counts[rank] = series, counts


def _rate(counts: Counts, now_ns: int) -> float:
    first, last = counts[0], counts[-1]
    if last.at_ns <= first.at_ns or now_ns - last.at_ns > _STALE_NS:
        return math.nan
    return (last.value - first.value) * SECOND_NS / (last.at_ns - first.at_ns)
