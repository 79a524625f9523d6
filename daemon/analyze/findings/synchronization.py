"""Rule: values are brought from the device to Python so often that the main thread waits for it at every step."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.devices import utilization
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.phaseloss import PhaseLoss
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.phases import SYNCHRONIZE

_ON_GPU = PhaseLoss(
    rule="synchronization",
    label="synchronization",
    phase=SYNCHRONIZE,
    title="the main thread waits for the device for {share} of its time{at}: no wait brings {gain}",
    cause="A value that Python asks for (.item(), .cpu(), print, float) is there only when the device has done all "
    "that was started before; meanwhile nothing new is started.",
    remedy="Keep values on the device, and bring them over every hundredth step only{at}.",
)
_ON_CPU = PhaseLoss(
    rule="synchronization",
    label="synchronization",
    phase=SYNCHRONIZE,
    title="{share} of the time goes into values that are brought to Python{at}: without them {gain}",
    cause="Numbers are computed and taken out of tensors one by one (.item(), .tolist(), print), step by step.",
    remedy="Do it every hundredth step only{at}, and for many values at once.",
)


def find(case: Case) -> Finding | None:
    """Return the finding where the main thread surely waits, and the device is not simply busy all the time."""
    share = case.share(_ON_GPU.phase)
    busy = utilization(case)
    # Steps take at least as long as the device works for them.
    surely = share.low if busy is None else min(share.low, 1 - busy)
    severity = severity_of(surely, case.profile.total_samples)
    if severity is None:
        return None
    if busy is None:
        return _ON_CPU.finding(case, share, severity)
    return _ON_GPU.finding(case, share, severity, limit=1 / busy if busy else None)
