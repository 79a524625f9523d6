"""Rule: a training process waits for pages that were written to disk for want of memory."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import CRITICAL, Finding, Measure
from profd.daemon.store.rows import ProcessRow
from profd.daemon.units import size

_FAULTS, _SWAPPED = "major_faults_per_s", "swap_bytes"
_MANY = 20.0


def find(case: Case) -> Finding | None:
    """Return the finding for the first training process that has pages on disk and waits for them."""
    for row in case.trainers:
        faults, swapped = case.mean(_FAULTS, row.id), case.mean(_SWAPPED, row.id)
        if faults is not None and swapped and faults >= _MANY:
            return _finding(case, row, faults, swapped)
    return None


def _finding(case: Case, row: ProcessRow, faults: float, swapped: float) -> Finding:
    return Finding(
        rule="swapping",
        severity=CRITICAL,
        label="swapping",
        title=f"swapping: main {row.pid} has {size(swapped)} on disk and waits for {faults:.0f} pages a second",
        cause="There is less memory than is in use, so parts of it are written to disk and read again.",
        remedy="Use less memory: fewer workers, a smaller prefetch_factor, memory-mapped data; or give it more.",
        gain_bound=None,
        evidence=case.evidence(
            Measure("pages from disk", faults, "/s"),
            Measure("in swap", swapped, "bytes"),
            series=(_FAULTS, _SWAPPED),
        ),
        page="swapping",
    )
