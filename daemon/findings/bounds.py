"""By how much steps get faster at most, with the cores that a run may use.

A share of time is one in the company that the training had. While its main thread waits for cores that others use, what
is left after a fix would be as slow as before, or much faster where they leave: shares do not tell.
"""

from __future__ import annotations

import statistics

from profd.daemon.analyze import series
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.analyze.series import CORE_WAIT, PRESSURE
from profd.daemon.findings.context import FindingContext, Share, living_at_once
from profd.daemon.store.rows import ThreadRow


def usable_cores(case: FindingContext) -> float | None:
    """Return how many cores the machine has, or the tightest control group allows; None where neither was read."""
    whole = series.machine_cores(case.reader)
    limits = [
        point.value
        for row in case.reader.series.values()
        if row.name == "cgroup_cpu_limit_cores"
        if (point := case.reader.last_point(row.id)) is not None
    ]
    found = [*limits, *([float(whole)] if whole else [])]
    return min(found, default=None)


def ceiling(case: FindingContext) -> float | None:
    """Return by how many times the training can get faster until the work that it does now fills all cores.

    Counted is what surely is work: the CPU time of the main threads outside of waits, and that of the workers. None
    where it was not read.
    """
    usable = usable_cores(case)
    used = [case.mean("cpu_cores", row.id) for row in case.workers]
    busy = 1 - case.share(*WITHOUT_WORK).high
    mains = [min(on_cpu, busy) for row in case.trainers if (on_cpu := main_thread_cores(case, row.id)) is not None]
    work = sum(mains) + living_at_once(case) * _mean([one for one in used if one is not None])
    return max(usable / work, 1.0) if usable is not None and mains and work else None


def main_thread_cores(case: FindingContext, process: int) -> float | None:
    """Return the CPU time a second of the main thread of a process; None where it was not read."""
    return series.main_thread_cores(case.reader, process, case.from_ns, case.to_ns)


def core_wait(case: FindingContext) -> float | None:
    """Return the share of the time for which main threads waited for a core; None where nothing tells.

    It is no more than what is returned where the kernel tells only for how long anybody waited.
    """
    own = series.own_core_wait((row.id for row in case.trainers), case.mean)
    return case.mean(PRESSURE) if own is None else own


def core_wait_readings(case: FindingContext) -> list[float]:
    """Return the readings of that share."""
    own = [value for row in case.trainers for value in case.values(CORE_WAIT, row.id)]
    return own or case.values(PRESSURE)


def thread_cores(case: FindingContext, thread: ThreadRow) -> list[float]:
    """Return the readings of a thread's CPU time a second, in order of time."""
    return [
        point.value
        for row in case.reader.series.values()
        if row.name == "cpu_cores" and (row.process, row.os_tid) == (thread.process, thread.os_tid)
        for point in case.reader.points(row.id, case.from_ns, case.to_ns)
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


TOLD_UNTIL = 1.5
"""From this crowding on a bound would be one on the company, not on the fix."""
# What takes time on the main thread often slows the rest as well: caches are emptied, pages copied, cores fall asleep.
# Where a fix removed half of a step and more, the rest took 0.81 to 1.09 of the time that it had taken before.
_INDIRECT = 0.25


def bound(case: FindingContext, share: Share, *limits: float | None, indirect: float = _INDIRECT) -> float | None:
    """Return the bound on the gain of who takes a share away, where limits allow it.

    What is left may be as much shorter as cores were lacking for it, and a little more by what the share had cost it, a
    part ``indirect`` of the share at most: a limit that holds even so is given with ``limits``. None where that is so
    much that nothing tells.
    """
    crowded = crowding(case)
    if crowded > TOLD_UNTIL:
        return None
    rest = 1 - indirect * min(share.high, 1.0)
    return min([crowded * share.gain / rest, *(limit for limit in limits if limit is not None)])


def crowding(case: FindingContext) -> float:
    """Return by how many times the main threads' own work takes longer because they wait for a core; 1 where unknown.

    Who has work and no CPU time may wait for a core, a disk, or a lock; for a core it waits as long as the kernel says,
    or where that is not counted by thread, no longer than it says that anybody did.
    """
    known = [cores for row in case.trainers if (cores := main_thread_cores(case, row.id)) is not None]
    waited = core_wait(case)
    if not known or waited is None:
        return 1.0
    work = 1 - case.share(*WITHOUT_WORK).value
    on_cpu = min(statistics.fmean(known), work)
    held_up = min(work - on_cpu, waited)
    return work / (work - held_up) if held_up < work else float("inf")
