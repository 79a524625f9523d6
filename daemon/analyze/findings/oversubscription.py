"""Rule: more threads want to compute than there are cores, and stand in each other's way."""

from __future__ import annotations

import statistics

from profd.daemon.analyze.findings.case import Case, share_of_series
from profd.daemon.analyze.findings.cores import usable_cores
from profd.daemon.analyze.findings.finding import WARNING, Finding, Measure
from profd.daemon.analyze.findings.loaders import living_at_once
from profd.daemon.units import percent, plural

# For what part of the time some thread waits for a core; below it a machine is well used.
_PRESSED = 0.35
_THREADS_A_CORE = 4
# Of the time that the machine computes: less, and others than this training fill it.
_OF_THE_MACHINE = 0.6
_SERIES = "host_cpu_pressure_share"


def find(case: Case) -> Finding | None:
    """Return the finding where threads surely wait for cores, and they are those of this training."""
    pressure, cores = share_of_series(case.values(_SERIES), case.mean(_SERIES)), usable_cores(case)
    threads = _threads(case)
    if pressure is None or cores is None or pressure.low < _PRESSED or threads < _THREADS_A_CORE * cores:
        return None
    used, host = _used_cores(case), case.mean("host_cpu_share")
    if host is None or used < _OF_THE_MACHINE * host * cores:
        return None
    return Finding(
        rule="oversubscription",
        severity=WARNING,
        label="oversubscribed",
        title=f"oversubscribed: {threads:.0f} threads of the training share {plural(round(cores), 'core')}: "
        f"for {percent(pressure.value)} of the time some wait for one",
        cause="Operations are cut into as many parts as there are threads, and end when the last part does: "
        "the one whose thread had to wait for a core.",
        remedy=f"Set OMP_NUM_THREADS or torch.set_num_threads so that all processes together have no more than "
        f"{plural(round(cores), 'thread')}, in workers too.",
        gain_bound=None,
        evidence=case.evidence(
            pressure.measure("some thread waits for a core"),
            Measure("threads", threads, "threads"),
            series=(_SERIES, "threads"),
        ),
        page="oversubscription",
    )


def _threads(case: Case) -> float:
    """Return how many threads the training processes and their workers have at once."""
    mains = sum(case.mean("threads", row.id) or 0.0 for row in case.trainers)
    workers = [count for row in case.workers if (count := case.mean("threads", row.id)) is not None]
    return mains + living_at_once(case) * (statistics.fmean(workers) if workers else 0.0)


def _used_cores(case: Case) -> float:
    mains = sum(case.mean("cpu_cores", row.id) or 0.0 for row in case.trainers)
    workers = [used for row in case.workers if (used := case.mean("cpu_cores", row.id)) is not None]
    return mains + living_at_once(case) * (statistics.fmean(workers) if workers else 0.0)
