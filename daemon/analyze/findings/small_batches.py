"""Rule: batches are so small that what does not depend on their size takes much of a step.

There is no bound: larger batches also make operations more efficient, by much and by what no share of time tells.
What is known is the bound of who leaves the batches as they are, and the remedy has that.
"""

from __future__ import annotations

from profd.daemon.analyze.findings import unfused_optimizer
from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.devices import utilization
from profd.daemon.analyze.findings.finding import SEVERITIES, Finding, Measure
from profd.daemon.analyze.findings.severity import PRICE, Scale, severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import OPTIMIZER, STEP
from profd.daemon.units import percent

# A batch of three times the size, which memory mostly allows, spares two thirds: from these shares on a tenth of a step
# is worth a warning, a third of it an alarm.
_OPTIMIZER_SCALE = Scale(told=0.10, warned=0.15, critical=0.5)
_ENLARGE = "Enlarge the batch as far as memory allows (and the learning rate with it); the gain is one of samples."


def find(case: Case) -> Finding | None:
    """Return the finding where a GPU surely waits for Python, or without a GPU where the optimizer weighs heavily."""
    busy = utilization(case)
    return _optimizer_bound(case) if busy is None else _dispatch_bound(case, busy)


def _optimizer_bound(case: Case) -> Finding | None:
    share = case.share(OPTIMIZER)
    severity = _severity(case, share)
    if severity is None:
        return None
    line = case.line(OPTIMIZER)
    return Finding(
        rule="small-batches",
        severity=severity,
        label="small batches",
        title=f"small batches: the optimizer takes {percent(share.value)} of a step{at(line)}, whatever the size of "
        "the batch",
        cause="Each step updates all weights once, for however few samples.",
        remedy=f"{_ENLARGE} With batches as they are, one step of the optimizer for several of "
        f"them{at(line)} brings {at_most(bound(case, share))}.",
        gain_bound=None,
        evidence=case.evidence(share.measure(OPTIMIZER), phase=OPTIMIZER, line=line),
        page="small-batches",
    )


def _severity(case: Case, share: Share) -> str | None:
    """Return how grave it is, by what a larger batch spares.

    No more than that the optimizer is slow by itself, which is to be mended first.
    """
    severity, slow = severity_of(share.low, case.profile.total_samples, _OPTIMIZER_SCALE), unfused_optimizer.find(case)
    return severity if severity is None or slow is None else min(severity, slow.severity, key=SEVERITIES.index)


def _dispatch_bound(case: Case, busy: float) -> Finding | None:
    share = case.share(*STEP)
    idle = 1 - busy
    removable = Share(min(share.value, idle), min(share.low, idle), min(share.high, idle), share.samples)
    severity = severity_of(removable.low, case.profile.total_samples, PRICE)
    if severity is None:
        return None
    line, gain = case.line(*STEP), bound(case, removable, removable.gain)
    return Finding(
        rule="small-batches",
        severity=severity,
        label="small batches",
        title=f"small batches: the GPU is busy {percent(busy)} while the main thread starts operations "
        f"{percent(share.value)} of the time{at(line)}",
        cause="Operations are over on the GPU before Python has started the next: it waits for Python, not for data.",
        remedy=f"{_ENLARGE} With batches as they are, CUDA graphs (torch.compile with "
        f'mode="reduce-overhead") start the same operations at once, and bring {at_most(gain)}.',
        gain_bound=None,
        evidence=case.evidence(
            share.measure("starting operations"),
            Measure("GPU busy", busy),
            line=line,
            series=("gpu_utilization_share",),
        ),
        page="small-batches",
    )
