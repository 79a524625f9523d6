"""Rule: memory is given back to the kernel and taken from it anew, step by step, each page with a fault."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case, Share, share_of_series
from profd.daemon.analyze.findings.finding import Finding, Measure
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at_most
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.store.rows import ProcessRow
from profd.daemon.units import percent, size

_FAULTS, _SYSTEM, _USER = "minor_faults_per_s", "cpu_system_cores", "cpu_user_cores"
_MANY = 20_000.0
# A fault takes a microsecond, in a virtual machine two: where the kernel is busy for longer, it is with something else.
_LONGEST_S = 5e-6
# What a fault may take outside of the kernel besides: caches that it has displaced are filled again.
_BESIDES_S = 0.2e-6
_PAGE_BYTES = 4096


def find(case: Case) -> Finding | None:
    """Return the finding for the first training process in which faults surely take their part of the time."""
    for row in case.trainers:
        faults, share = case.mean(_FAULTS, row.id), _share(case, row)
        if share is None or faults is None or faults < _MANY:
            continue
        severity = severity_of(share.low, case.profile.total_samples)
        if severity is not None and (case.mean(_SYSTEM, row.id) or 0.0) <= faults * _LONGEST_S:
            return _finding(case, share, faults, severity)
    return None


def _share(case: Case, row: ProcessRow) -> Share | None:
    """Return the kernel's part of the time in which the training works; the threads of a process share both alike."""
    readings = zip(case.values(_SYSTEM, row.id), case.values(_USER, row.id), strict=False)
    kernel = share_of_series([system / (system + user) for system, user in readings if system + user])
    if kernel is None:
        return None
    work = 1 - case.share(*WITHOUT_WORK).value
    return Share(kernel.value * work, kernel.low * work, kernel.high * work, kernel.samples)


def _finding(case: Case, share: Share, faults: float, severity: str) -> Finding:
    besides = min(share.high + faults * _BESIDES_S, 1.0)
    gain = bound(case, msgspec.structs.replace(share, high=besides))
    return Finding(
        rule="allocator-churn",
        severity=severity,
        label="memory churn",
        title=f"memory churn: {size(faults * _PAGE_BYTES)} of memory a second are taken from the kernel anew, for "
        f"{percent(share.value)} of the time: keeping it brings {at_most(gain)}",
        cause="Large tensors are given back to the kernel when they are freed. The next ones get other pages, "
        "each of which is cleared and mapped when it is first written to.",
        remedy="Set MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ to 4294967296 in the environment, so that the "
        "process keeps what it frees (or preload jemalloc); reuse tensors in the loop (out=, operations in place).",
        gain_bound=gain,
        evidence=case.evidence(
            share.measure("in the kernel"), Measure("page faults", faults, "/s"), series=(_FAULTS, _SYSTEM)
        ),
        page="allocator-churn",
    )
