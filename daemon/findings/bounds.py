"""The cores that a run may use, and by how much steps get faster until they are all at work."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from profd.daemon.analyze import series
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.shares import Share
from profd.daemon.store.rows import ThreadRow


def cpu_limits(context: FindingContext) -> list[float]:
    rows = context.reader.list_series("cgroup_cpu_limit_cores")
    return [point.value for row in rows if (point := context.reader.last_point(row.id)) is not None]


def usable_cores(context: FindingContext) -> float | None:
    known = [*cpu_limits(context), series.machine_cores(context.reader)]
    return min(filter(None, known), default=None)


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


class Crew(NamedTuple):
    """How many workers a rank needs for steps that wait no more, in words and ``most`` of them.

    They are no more than the cores without other work. With them steps get at most ``gain`` times
    as fast, and ``least`` times if nothing else holds them up; None if the CPU time is unknown.
    ``most`` is 0 if no more work finds a core.
    """

    words: str
    most: int
    least: float | None
    gain: float


_UNKNOWN = 256.0  # cores of any machine, and how many times more work they have room for


def crew_for(context: FindingContext, load: Share, spared: Share, count: int = 0) -> Crew:
    """Return how many workers make the batches once steps no longer take the time ``spared``.

    ``load`` is for what time of a second a rank's ``count`` workers make batches for its steps.
    """
    limit, cores = ceiling(context), usable_cores(context) or _UNKNOWN
    work = cores / (limit or _UNKNOWN)
    idle = 1 - (context.mean("host_cpu_share") or 0.0)
    idle *= series.machine_cores(context.reader) or _UNKNOWN
    faster = min(1 + idle / work, cores / work)
    # Readings of a second do not fit together to a tenth of a core.
    free = min(work + idle + 0.2, cores) // max(len(context.trainers), 1)
    low, high = min(spared.least_gain, faster), min(spared.gain, faster)
    needed = (math.ceil(low * load.low), math.ceil(high * load.high))
    least, most = (int(max(min(max(number, count + 1), free), 1)) for number in needed)
    words = f"{most}" if least == most else f"{least}-{most}"
    surely = min(low, least / load.high) if limit else None
    gain = context.bound(spared, limit, most / max(load.low, 0.01))
    return Crew(words, most if faster >= 1.1 else 0, surely, gain)


def readings_of(
    context: FindingContext, threads: Collection[ThreadRow], name: str
) -> dict[int, list[float]]:
    """Return by thread what a series of it was at each reading; threads not read are left out."""
    found = series.of_threads(context.reader, threads, name)
    return {
        thread: [point.value for point in context.reader.points(one, context.time)]
        for thread, one in found.items()
    }
