"""By how much steps get faster at most, with the cores that a run may use.

A share of time was measured beside other work on the machine. While the main thread waits for cores that others use,
what is left after a fix may stay as slow, or get much faster once they leave: shares do not show which.
"""

from __future__ import annotations

from profd.daemon.analyze import series
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.analyze.series import CORE_WAIT, PRESSURE, mean_of_known
from profd.daemon.findings.context import FindingContext, Share
from profd.daemon.store.rows import ThreadRow


def cpu_limits(context: FindingContext) -> list[float]:
    rows = [row for row in context.reader.series.values() if row.name == "cgroup_cpu_limit_cores"]
    return [point.value for row in rows if (point := context.reader.last_point(row.id)) is not None]


def usable_cores(context: FindingContext) -> float | None:
    whole = series.machine_cores(context.reader)
    return min([*cpu_limits(context), *([float(whole)] if whole else [])], default=None)


def ceiling(context: FindingContext) -> float | None:
    """Return by how many times the training can get faster until the work that it does now fills all cores.

    Counted is what surely is work: the CPU time of the main threads outside of waits, and that of the workers. None
    where it was not read.
    """
    usable, busy = usable_cores(context), 1 - context.share(*WITHOUT_WORK).high
    mains = [min(cores, busy) for row in context.trainers if (cores := context.main_thread_cores(row.id)) is not None]
    work = sum(mains) + context.workers_at_once * (mean_of_known(context.worker_means("cpu_cores")) or 0.0)
    return max(usable / work, 1.0) if usable is not None and mains and work else None


def thread_cores(context: FindingContext, thread: ThreadRow) -> list[float]:
    return [
        point.value
        for one in series.cpu_series(context.reader, [thread])
        for point in context.reader.points(one, context.from_ns, context.to_ns)
    ]


KNOWN_UNTIL = 1.5
"""From this crowding on a bound would be one on the other work on the machine, not on the fix."""
# What takes time on the main thread often slows the rest as well: caches are emptied, pages copied, cores fall asleep.
# Where a fix removed half of a step and more, the rest took 0.81 to 1.09 of the time that it had taken before.
_INDIRECT = 0.25


def bound(context: FindingContext, share: Share, *limits: float | None, indirect: float = _INDIRECT) -> float | None:
    """Return the bound on the gain of removing what takes a share, where limits allow it.

    What is left may be as much shorter as cores were lacking for it, and a little more by what the share had cost it, a
    part ``indirect`` of the share at most: a limit that holds even so is given with ``limits``. None where that is so
    much that the gain is unknown.
    """
    crowded = crowding(context)
    if crowded > KNOWN_UNTIL:
        return None
    rest = 1 - indirect * min(share.high, 1.0)
    return min([crowded * share.gain / rest, *(limit for limit in limits if limit is not None)])


def crowding(context: FindingContext) -> float:
    """Return by how many times the main threads' own work takes longer because they wait for a core; 1 where unknown.

    A thread with work and no CPU time may wait for a core, a disk, or a lock; for a core it waits as long as the kernel
    says, or where that is not counted by thread, no longer than it says that any thread did.
    """
    cores = mean_of_known(context.main_thread_cores(row.id) for row in context.trainers)
    waited = mean_of_known(context.mean(CORE_WAIT, row.id) for row in context.trainers)
    waited = context.mean(PRESSURE) if waited is None else waited
    if cores is None or waited is None:
        return 1.0
    work = 1 - context.share(*WITHOUT_WORK).value
    held_up = min(work - min(cores, work), waited)
    return work / (work - held_up) if held_up < work else float("inf")
