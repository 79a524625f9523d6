"""The cores that a run may use, and by how much steps get faster until they are all at work."""

from __future__ import annotations

from collections.abc import Collection

from profd.daemon.analyze import series
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.findings.context import FindingContext
from profd.daemon.store.rows import ThreadRow


def cpu_limits(context: FindingContext) -> list[float]:
    rows = context.reader.list_series("cgroup_cpu_limit_cores")
    return [point.value for row in rows if (point := context.reader.last_point(row.id)) is not None]


def usable_cores(context: FindingContext) -> float | None:
    whole = series.machine_cores(context.reader)
    return min([*cpu_limits(context), *([float(whole)] if whole else [])], default=None)


def ceiling(context: FindingContext) -> float | None:
    """Return how many times faster the training can get until its present work fills all cores.

    Only what surely is work counts: the CPU time of the main threads outside of waits, and that of
    the workers. None if it was not read.
    """
    usable, busy = usable_cores(context), 1 - context.share(*WITHOUT_WORK).high
    mains = [
        min(cores, busy)
        for row in context.trainers
        if (cores := context.main_thread_cores(row.id)) is not None
    ]
    each = context.mean_of_workers("cpu_cores") or 0.0
    work = sum(mains) + context.workers_at_once * each
    return max(usable / work, 1.0) if usable is not None and mains and work else None


def thread_cores(context: FindingContext, threads: Collection[ThreadRow]) -> dict[int, list[float]]:
    """Return by thread how many cores it used at each reading; threads not read are left out."""
    found = series.cpu_series(context.reader, threads)
    return {
        thread: [point.value for point in context.reader.points(one, context.time)]
        for thread, one in found.items()
    }
