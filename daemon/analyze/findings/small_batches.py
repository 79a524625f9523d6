"""Rule: batches are so small that what does not depend on their size takes much of a step."""

from __future__ import annotations

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.devices import utilization
from profd.daemon.analyze.findings.finding import Finding, Measure
from profd.daemon.analyze.findings.phaseloss import PhaseLoss
from profd.daemon.analyze.findings.severity import PRICE, severity_of
from profd.daemon.analyze.findings.wording import at, at_most, percent

_STARTING = ("forward", "loss", "backward", "optimizer")
_REMEDY = (
    "Enlarge the batch as far as memory allows (and the learning rate with it), or take one step of the optimizer for "
    "several batches{at}."
)
_OPTIMIZER = PhaseLoss(
    rule="small-batches",
    label="small batches",
    phase="optimizer",
    title="the optimizer takes {share} of a step{at}, whatever the size of the batch: larger ones bring {gain}",
    cause="Each step updates all weights once, for however few samples.",
    remedy=_REMEDY,
    scale=PRICE,
)


def find(case: Case) -> Finding | None:
    """Return the finding where a GPU surely waits for Python, or without a GPU where the optimizer weighs heavily."""
    busy = utilization(case)
    return _OPTIMIZER(case) if busy is None else _dispatch_bound(case, busy)


def _dispatch_bound(case: Case, busy: float) -> Finding | None:
    share = case.share(*_STARTING)
    idle = 1 - busy
    removable = Share(min(share.value, idle), min(share.low, idle), min(share.high, idle), share.samples)
    severity = severity_of(removable.low, case.profile.total_samples, PRICE)
    if severity is None:
        return None
    line, gain = case.line(*_STARTING), bound(case, removable)
    return Finding(
        rule="small-batches",
        severity=severity,
        label="small batches",
        title=f"small batches: the GPU is busy {percent(busy)} while the main thread starts operations "
        f"{percent(share.value)} of the time: larger ones bring {at_most(gain)}",
        cause="Operations are over on the GPU before Python has started the next: it waits for Python, not for data.",
        remedy=_REMEDY.format(at=at(line)) + " torch.compile and CUDA graphs start many operations at once.",
        gain_bound=gain,
        evidence=case.evidence(
            share.measure("starting operations"),
            Measure("GPU busy", busy),
            line=line,
            series=("gpu_utilization_share",),
        ),
        page="small-batches",
    )
