"""The machine's cores, and how much of one a main thread had, as the series of a run tell."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable

from profd.daemon.analyze.course import take_course
from profd.daemon.store.reader import RunReader

PRESSURE, CORE_WAIT = "host_cpu_pressure_share", "main_thread_core_wait_share"
"""For what part of the time anybody waited for a core, and a main thread, which not every kernel tells."""

_CORE = re.compile(r"cpu\d+")


def machine_cores(reader: RunReader) -> int:
    """Return how many cores the machine has; 0 where they were not read."""
    return len({row.device for row in reader.series.values() if _CORE.fullmatch(row.device or "")})


def own_core_wait(mains: Iterable[int], mean: Callable[[str, int], float | None]) -> float | None:
    """Return the share of the time for which main threads waited for a core; None where the kernel does not tell.

    ``mains`` are their processes, ``mean`` gives the mean of a series of one of them.
    """
    known = [waited for process in mains if (waited := mean(CORE_WAIT, process)) is not None]
    return statistics.fmean(known) if known else None


def main_thread_cores(reader: RunReader, process: int, from_ns: int | None, to_ns: int | None) -> float | None:
    """Return the CPU time a second of the main thread of a process; None where it was not read."""
    mains = {row.os_tid for row in reader.threads.values() if row.process == process and row.is_main}
    means = [
        take_course(reader, row.id, from_ns, to_ns).total().mean
        for row in reader.series.values()
        if row.name == "cpu_cores" and row.process == process and row.os_tid in mains
    ]
    known = [mean for mean in means if mean is not None]
    return statistics.fmean(known) if known else None
