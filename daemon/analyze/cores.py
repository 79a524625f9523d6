"""The machine's cores, and how much of one a main thread had, as the series of a run tell."""

from __future__ import annotations

import re
import statistics

from profd.daemon.analyze.course import take_course
from profd.daemon.store.reader import RunReader

_CORE = re.compile(r"cpu\d+")


def machine_cores(reader: RunReader) -> int:
    """Return how many cores the machine has; 0 where they were not read."""
    return len({row.device for row in reader.series.values() if _CORE.fullmatch(row.device or "")})


def main_thread_cores(reader: RunReader, process: int, from_ns: int | None, to_ns: int | None) -> float | None:
    """Return the CPU time a second of the main thread of a process; None where it was not read."""
    mains = {row.os_tid for row in reader.threads.values() if row.process == process and row.is_main}
    means = [
        take_course(reader, row.id, from_ns, to_ns).mean()
        for row in reader.series.values()
        if row.name == "cpu_cores" and row.process == process and row.os_tid in mains
    ]
    known = [mean for mean in means if mean is not None]
    return statistics.fmean(known) if known else None
