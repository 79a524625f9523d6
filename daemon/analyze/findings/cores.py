"""How many cores a run may use, and how much faster they allow it to get at most."""

from __future__ import annotations

from profd.daemon.analyze import cores
from profd.daemon.analyze.cores import CORE_WAIT, PRESSURE
from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.loaders import living_at_once
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.store.rows import ThreadRow


def usable_cores(case: Case) -> float | None:
    """Return how many cores the machine has, or the tightest control group allows; None where neither was read."""
    whole = cores.machine_cores(case.reader)
    limits = [
        point.value
        for row in case.reader.series.values()
        if row.name == "cgroup_cpu_limit_cores"
        if (point := case.reader.last_point(row.id)) is not None
    ]
    found = [*limits, *([float(whole)] if whole else [])]
    return min(found, default=None)


def ceiling(case: Case) -> float | None:
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


def main_thread_cores(case: Case, process: int) -> float | None:
    """Return the CPU time a second of the main thread of a process; None where it was not read."""
    return cores.main_thread_cores(case.reader, process, case.from_ns, case.to_ns)


def core_wait(case: Case) -> float | None:
    """Return the share of the time for which main threads waited for a core; None where nothing tells.

    It is no more than what is returned where the kernel tells only for how long anybody waited.
    """
    own = cores.own_core_wait((row.id for row in case.trainers), case.mean)
    return case.mean(PRESSURE) if own is None else own


def core_wait_readings(case: Case) -> list[float]:
    """Return the readings of that share."""
    own = [value for row in case.trainers for value in case.values(CORE_WAIT, row.id)]
    return own or case.values(PRESSURE)


def thread_cores(case: Case, thread: ThreadRow) -> list[float]:
    """Return the readings of a thread's CPU time a second, in order of time."""
    return [
        point.value
        for row in case.reader.series.values()
        if row.name == "cpu_cores" and (row.process, row.os_tid) == (thread.process, thread.os_tid)
        for point in case.reader.points(row.id, case.from_ns, case.to_ns)
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
