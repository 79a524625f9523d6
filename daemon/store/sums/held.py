"""When a GPU is idle and a thread on the CPU, and which GPUs a process uses: what readings are taken to say.

Here once for all, since who sums up while a run is written and who reads it one by one have to agree to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.stepfunction import StepFunction
from profd.daemon.store.sums.cover import Cover

MINUTE_NS = 60 * SECOND_NS
HOUR_MINUTES = 60
UTILIZATION = "gpu_utilization_share"
MEMORY_OF_PROCESS = "gpu_process_memory_bytes"
THREAD_CPU = "cpu_cores"
IDLE_BELOW = 0.05
"""A GPU is idle where less than this share of a period had a kernel running."""
ON_CPU_ABOVE = 0.5
"""A thread is on the CPU where it used at least this part of a core: it ran more than it waited."""
LONGEST_INTERVAL_NS = MINUTE_NS
"""No interval is longer: none is longer than its recording."""
READINGS = """
    SELECT at_ns, value FROM point WHERE series = :series
    AND at_ns >= coalesce((SELECT min(at_ns) FROM (
        SELECT at_ns FROM point WHERE series = :series AND at_ns <= :from ORDER BY at_ns DESC LIMIT 10)), :from)
    AND at_ns <= coalesce(
        (SELECT at_ns FROM point WHERE series = :series AND at_ns >= :to ORDER BY at_ns LIMIT 1 OFFSET 1),
        9223372036854775807)
    ORDER BY at_ns
"""
"""The readings that tell of a range of time: two beyond its end, and so many before it as tell what is usual."""


def added_up() -> str:
    """Return, as SQL, the sums of sums over several minutes, in the order of their columns."""
    return (
        "sum(samples), sum(duration_ns), max(until_ns), sum(known_ns), sum(busy_ns),"
        " sum(idle_samples), sum(idle_ns), sum(cpu_samples), sum(cpu_ns), sum(both_samples), sum(both_ns)"
    )


def hours_between(from_ns: int, to_ns: int) -> range:
    """Return the hours since the run's start that lie whole in a range of time since then."""
    hour_ns = HOUR_MINUTES * MINUTE_NS
    first = max(-(-from_ns // hour_ns), 0)
    return range(first, max(to_ns // hour_ns, first))


def idle_time(utilization: StepFunction, limit: float = IDLE_BELOW) -> Cover:
    """Return when a GPU was utilized below a limit."""
    return utilization.where(lambda value: value < limit or value == 0.0)


def on_cpu_time(cores: StepFunction) -> Cover:
    """Return when a thread ran more than it waited."""
    return cores.where(lambda value: value >= ON_CPU_ABOVE)


def devices_used(
    process: int,
    parents: Mapping[int, int | None],
    held: Mapping[int, Collection[str]],
    devices: frozenset[str],
) -> frozenset[str]:
    """Return the devices on which a process, or the one that it works for, has memory; else all devices.

    ``held`` are the devices on which each process has memory: a worker loads data for its parent's GPU.
    """
    seen: set[int] = set()
    at: int | None = process
    while at is not None and at in parents and at not in seen:
        own = devices.intersection(held.get(at, ()))
        if own:
            return own
        seen.add(at)
        at = parents[at]
    return devices


def samples_inside(samples: int, duration_ns: int, inside_ns: int) -> int:
    """Return how many samples of an interval belong to ``inside_ns`` of it: whole ones, so that all sums agree."""
    return (2 * samples * inside_ns + duration_ns) // (2 * max(duration_ns, 1))
