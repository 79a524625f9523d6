"""Rule: the main thread loads its batches itself (``num_workers=0``), and the model waits meanwhile."""

from __future__ import annotations

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.cores import ceiling, usable_cores
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import DATA_LOAD
from profd.daemon.units import percent


def find(case: Case) -> Finding | None:
    """Return the finding where loading in the main thread surely takes a part of the steps."""
    share = case.share(DATA_LOAD)
    severity = severity_of(share.low, case.profile.total_samples)
    if severity is None:
        return None
    line = case.line(DATA_LOAD)
    gain = bound(case, share, ceiling(case))
    workers = _workers(share.value, usable_cores(case))
    return Finding(
        rule="input-bound-in-process",
        severity=severity,
        label="input-bound",
        title=f"input-bound: the main thread loads data {percent(share.value)} of the time{at(line)}: "
        f"loading in {workers} brings {at_most(gain)}",
        cause="A DataLoader with num_workers=0 prepares each batch between two steps, in the thread that trains: "
        "neither CPU nor GPU work on the model meanwhile.",
        remedy=f"Give the DataLoader{at(line)} num_workers={workers.split()[0]} (and persistent_workers=True), "
        "so that batches are ready when a step ends.",
        gain_bound=gain,
        evidence=case.evidence(share.measure(DATA_LOAD), phase=DATA_LOAD, line=line, series=("cpu_cores",)),
        page="input-bound-in-process",
    )


def _workers(share: float, cores: float | None) -> str:
    """Return how many workers keep up with steps that do not load any more, but none without a core to spare."""
    needed = -(-share // (1 - min(share, 0.99)))
    count = max(int(min(needed, max((cores or needed) - 1, 1))), 1)
    return "1 worker" if count == 1 else f"{count} workers"
