"""Rule: the main thread stands still while batches are copied to the GPU."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.devices import utilization
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.phaseloss import PhaseLoss
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.phases import COPY

_COPIES = PhaseLoss(
    rule="host-to-device-copies",
    label="copies",
    phase=COPY,
    title="copying to the GPU takes {share} of the time{at}: copies beside the computing bring {gain}",
    cause="Memory that is not pinned is copied in steps, and the main thread waits until the copy has been made.",
    remedy="Set pin_memory=True in the DataLoader and copy with .to(device, non_blocking=True){at}; send bytes instead "
    "of floats, and convert them on the GPU.",
)


def find(case: Case) -> Finding | None:
    """Return the finding where copies surely take their part, and the GPU has room for more."""
    busy = utilization(case)
    share = case.share(_COPIES.phase)
    severity = severity_of(share.low if busy is None else min(share.low, 1 - busy), case.profile.total_samples)
    if severity is None:
        return None
    return _COPIES.finding(case, share, severity, limit=1 / busy if busy else None)
